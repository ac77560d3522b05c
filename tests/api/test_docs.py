"""Swagger UI and ReDoc, from local files alone: in their HTML, and in a browser."""

import os
import shutil
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, async_playwright

from tests.gateway.process import RunningGateway

PAGES = ["/docs", "/redoc"]


class References(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name in ("src", "href", "spec-url", "action") and value]


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_refers_to_nothing_but_what_is_here(staged: RunningGateway, page: str) -> None:
    answer = await staged.client.get(page)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    references = References(answer.text).found
    assert references
    for reference in references:
        assert "//" not in reference
        assert (await staged.client.get(f"/{reference}")).status_code == 200


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
    page = await browser.new_page(base_url=staged.address.url)
    elsewhere: list[str] = []
    complaints: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((staged.address.url, "data:", "blob:")):
            elsewhere.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield page
    await page.close()
    assert not elsewhere
    assert not complaints


async def test_swagger_ui_lists_the_operations_and_runs_one_with_a_key(staged: RunningGateway, page: Page) -> None:
    await page.goto("/docs")
    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator("#auth-bearer-value").fill(staged.tenants.keys["open"])
    await page.locator(".modal-ux .authorize").first.click()
    await page.locator(".btn-done").first.click()
    operation = page.locator("#operations-models-list_models")
    await operation.click()
    await operation.get_by_role("button", name="Execute").click()
    await operation.locator(".live-responses-table .microlight").first.wait_for()
    answer = await operation.locator(".live-responses-table").inner_text()
    assert "200" in answer
    assert '"vectors"' in answer
    assert await page.locator(".opblock").count() == 6


async def test_redoc_shows_the_document(page: Page) -> None:
    await page.goto("/redoc")
    await page.get_by_role("heading", name="List Models").first.wait_for()
    assert "Conch" in await page.title()
