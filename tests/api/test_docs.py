"""The pages for people, from local files alone: in their HTML, and in a browser."""

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, async_playwright

from app.errors import family
from tests.fakes.triton import FakeTriton
from tests.gateway.process import RunningGateway

PAGES = ["/docs", "/redoc", "/problems", "/problems/rate_limited"]


class References(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name in ("src", "href", "spec-url", "action") and value]


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_refers_to_nothing_but_what_is_here_and_public(staged: RunningGateway, page: str) -> None:
    answer = await staged.client.get(page)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert ("'unsafe-inline'" in policy) is (page in ("/docs", "/redoc"))
    references = References(answer.text).found
    assert references
    for reference in references:
        assert "//" not in reference
        assert (await staged.client.get(urljoin(page, reference))).status_code == 200


async def test_the_root_leads_to_swagger_ui(staged: RunningGateway) -> None:
    answer = await staged.client.get("/")
    assert (answer.status_code, urljoin("/", answer.headers["location"])) == (307, "/docs")


@pytest.mark.parametrize("kind", family(), ids=lambda kind: kind.code)
async def test_the_type_of_each_problem_leads_to_a_page_about_it(staged: RunningGateway, kind: type) -> None:
    code = getattr(kind, "code", "")
    page = await staged.client.get(f"/problems/{code}")
    assert page.status_code == 200
    assert f"<h1>{code}</h1>" in page.text
    assert f'<a href="problems/{code}">' in (await staged.client.get("/problems")).text


async def test_there_is_no_page_about_what_is_no_problem(staged: RunningGateway) -> None:
    assert (await staged.client.get("/problems/%3Cb%3E")).status_code == 404


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None and "CI" not in os.environ:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    assert path, "there must be a Chromium in CI: apt-get install chromium"
    async with async_playwright() as playwright:
        once = "--js-flags=--max-lazy --no-opt"  # what runs once is not worth to be compiled well
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", once])
        yield browser
        await browser.close()


@dataclass
class Tab:
    page: Page
    wrong: list[str] = field(default_factory=list)
    """What is asked of anybody else, and what the page complains about."""

    @classmethod
    async def open(cls, browser: Browser, home: str) -> "Tab":
        context = await browser.new_context(base_url=home)
        tab = cls(await context.new_page())
        tab.page.on(
            "request", lambda request: tab.note("" if request.url.startswith((home, "data:", "blob:")) else request.url)
        )
        tab.page.on("pageerror", lambda error: tab.note(str(error)))
        tab.page.on("console", lambda message: tab.note(message.text if message.type == "error" else ""))
        return tab

    def note(self, words: str) -> None:
        if words:
            self.wrong.append(words)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def swagger(browser: Browser, _staged: RunningGateway) -> AsyncIterator[Tab]:
    """Swagger UI takes seconds to draw itself, so that it does so once; see `page`."""
    tab = await Tab.open(browser, _staged.address.url)
    await tab.page.goto("/docs")
    yield tab
    await tab.page.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(swagger: Tab, staged: RunningGateway) -> AsyncIterator[Page]:
    """Swagger UI, with a key."""
    await swagger.page.locator(".btn.authorize").first.wait_for()
    if not await swagger.page.locator(".btn.authorize.locked").count():
        await authorize(swagger.page, staged.tenants.keys["open"])
    yield swagger.page
    assert not swagger.wrong


async def authorize(page: Page, key: str) -> None:
    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator("#auth-bearer-value").fill(key)
    await page.locator(".modal-ux .authorize").first.click()
    await page.locator(".btn-done").first.click()


async def execute(operation: Locator) -> str:
    await operation.locator(".execute").click()
    await operation.locator(".live-responses-table .microlight").first.wait_for()
    return await operation.locator(".live-responses-table").inner_text()


async def test_a_key_is_entered_once_and_remembered_for_the_tab_alone(staged: RunningGateway, page: Page) -> None:
    await page.reload()
    await page.locator(".btn.authorize.locked").wait_for()
    operation = page.locator("#operations-models-list_models")
    await operation.locator(".opblock-summary").click()
    assert '"vectors"' in await execute(operation)
    await operation.locator(".opblock-summary").click()
    assert staged.tenants.keys["open"] in await page.evaluate("JSON.stringify(sessionStorage)")
    assert await page.evaluate("localStorage.length") == 0
    other = await page.context.new_page()
    await other.goto("/docs")
    await other.locator(".btn.authorize.unlocked").first.wait_for()
    assert await other.evaluate("sessionStorage.length") == 0
    await other.close()


async def test_a_key_that_was_taken_back_is_forgotten(staged: RunningGateway, page: Page) -> None:
    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator(".modal-ux button", has_text="Logout").first.click()
    assert staged.tenants.keys["open"] not in await page.evaluate("JSON.stringify(sessionStorage)")
    await page.locator(".btn-done").first.click()


TRIED = {
    "tasks-classify": ('{"model": "words", "inputs": ["a"]}', '"red"'),
    "tasks-entities": ('{"model": "spans", "inputs": ["a"]}', '"entities"'),
    "tasks-embeddings": ('{"model": "vectors", "input": "a"}', '"embedding"'),
    "tasks-analyze": ('{"model": "heads", "inputs": ["a"]}', '"mood"'),
    "tasks-rerank_for_cohere": ('{"model": "pairs", "query": "a", "documents": ["b"]}', '"relevance_score"'),
    "tasks-rerank": ('{"model": "pairs", "query": "a", "documents": ["b"]}', '"relevance_score"'),
}


async def test_every_task_can_be_tried_and_shows_its_answer(staged: RunningGateway, stage: FakeTriton, page: Page) -> None:
    assert await page.locator("#operations-tag-tasks ~ div .opblock, .opblock[id^=operations-tasks]").count() == len(TRIED)
    for name, (body, shown) in TRIED.items():
        operation = page.locator(f"#operations-{name}")
        await operation.locator(".opblock-summary").click()
        await operation.locator("textarea").fill(body)
        answer = await execute(operation)
        assert "200" in answer
        assert shown in answer
        await operation.locator(".opblock-summary").click()


async def test_redoc_shows_the_document(browser: Browser, staged: RunningGateway) -> None:
    tab = await Tab.open(browser, staged.address.url)
    await tab.page.goto("/redoc")
    await tab.page.get_by_role("heading", name="Sort texts into a model's labels").first.wait_for()
    assert "Conch" in await tab.page.title()
    assert not tab.wrong
    await tab.page.context.close()
