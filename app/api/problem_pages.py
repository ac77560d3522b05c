"""What each error means, as pages: where the `type` of a problem leads."""

import html
import re
from collections.abc import Callable

from app.errors import NotFound

_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_RULES = (
    (re.compile(r"\*\*(\d{3})(\.?)\*\*"), r'<strong class="status">\1</strong>\2'),
    (re.compile(r"\*\*(.+?)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\[([^]]+)\]\((https?://[^)]+)\)"), r'<a href="\2">\1</a>'),
    (re.compile(r"\[([^]]+)\]\([^)]+\)"), r"\1"),  # a document of the repository, which is not served
)
Page = Callable[[str, str, str], str]
"""Title, content and the way to the root, to a page."""


class ProblemPages:
    """Made of `docs/errors.md`, of which this package has a copy: a section for each code."""

    def __init__(self, markdown: str, page: Page) -> None:
        sections = dict(_SECTION.findall(markdown))
        items = "\n".join(_item(code, of) for code, of in sections.items())
        self.list = page("Errors of Conch", f"<article><h1>Errors</h1>\n<dl>\n{items}\n</dl></article>", "")
        self._pages = {code: page(f"{code}: an error of Conch", _article(code, of), "../") for code, of in sections.items()}

    def of(self, code: str) -> str:
        """Raises `NotFound`."""
        if code not in self._pages:
            raise NotFound("there is no such error; /problems lists them")
        return self._pages[code]


def _item(code: str, markdown: str) -> str:
    return f'<dt><a href="problems/{code}">{code}</a></dt><dd>{_inline(markdown)}</dd>'


def _article(code: str, markdown: str) -> str:
    paragraphs = "\n".join(f"<p>{_inline(part)}</p>" for part in markdown.strip().split("\n\n"))
    return f'<article><p>One of <a href="../problems">the errors of Conch</a></p>\n<h1>{code}</h1>\n{paragraphs}\n</article>'


def _inline(markdown: str) -> str:
    text = html.escape(markdown.strip(), quote=False)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
