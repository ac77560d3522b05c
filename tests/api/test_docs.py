"""The pages for people, from local files alone: in their HTML, and in a browser."""

import os
import shutil
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Request, async_playwright

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
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, staged: RunningGateway) -> AsyncIterator[Page]:
    """It fails the test where it asks anybody else, and where it says that something is wrong."""
    context = await browser.new_context(base_url=staged.address.url)
    page = await context.new_page()
    elsewhere: list[str] = []
    complaints: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((staged.address.url, "data:", "blob:")):
            elsewhere.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield page
    await context.close()
    assert not elsewhere
    assert not complaints


async def authorize(page: Page, key: str) -> None:
    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator("#auth-bearer-value").fill(key)
    await page.locator(".modal-ux .authorize").first.click()
    await page.locator(".btn-done").first.click()


async def execute(operation: Locator) -> str:
    await operation.get_by_role("button", name="Execute").click()
    await operation.locator(".live-responses-table .microlight").first.wait_for()
    return await operation.locator(".live-responses-table").inner_text()


async def test_a_key_is_entered_once_and_remembered_for_the_tab_alone(staged: RunningGateway, page: Page) -> None:
    key = staged.tenants.keys["open"]
    await page.goto("/docs")
    await authorize(page, key)
    await page.reload()
    await page.locator(".btn.authorize.locked").wait_for()
    operation = page.locator("#operations-models-list_models")
    await operation.click()
    answer = await execute(operation)
    assert '"vectors"' in answer
    assert key in await page.evaluate("JSON.stringify(sessionStorage)")
    assert await page.evaluate("localStorage.length") == 0
    other = await page.context.new_page()
    await other.goto("/docs")
    await other.locator(".btn.authorize.unlocked").first.wait_for()
    assert await other.evaluate("sessionStorage.length") == 0


async def test_a_key_that_was_taken_back_is_forgotten(staged: RunningGateway, page: Page) -> None:
    await page.goto("/docs")
    await authorize(page, staged.tenants.keys["open"])
    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator(".modal-ux button", has_text="Logout").first.click()
    assert staged.tenants.keys["open"] not in await page.evaluate("JSON.stringify(sessionStorage)")


TRIED = {
    "tasks-classify": ('{"model": "words", "inputs": ["a"]}', '"red"'),
    "tasks-entities": ('{"model": "spans", "inputs": ["a"]}', '"entities"'),
    "tasks-embeddings": ('{"model": "vectors", "input": "a"}', '"embedding"'),
    "tasks-analyze": ('{"model": "heads", "inputs": ["a"]}', '"mood"'),
    "tasks-rerank": ('{"model": "pairs", "query": "a", "documents": ["b"]}', '"relevance_score"'),
}


async def test_every_task_can_be_tried_and_shows_its_answer(staged: RunningGateway, stage: FakeTriton, page: Page) -> None:
    await page.goto("/docs")
    await authorize(page, staged.tenants.keys["open"])
    assert await page.locator("#operations-tag-tasks ~ div .opblock, .opblock[id^=operations-tasks]").count() == len(TRIED)
    for name, (body, shown) in TRIED.items():
        operation = page.locator(f"#operations-{name}")
        await operation.locator(".opblock-summary").click()
        await operation.locator("textarea").fill(body)
        answer = await execute(operation)
        assert "200" in answer
        assert shown in answer
        await operation.locator(".opblock-summary").click()


async def test_redoc_shows_the_document(page: Page) -> None:
    await page.goto("/redoc")
    await page.get_by_role("heading", name="Sort texts into a model's labels").first.wait_for()
    assert "Conch" in await page.title()
