"""How Sphinx makes a site of these pages: `make docs` writes it to build/site. The pages are read in the repository, too."""

import re

project = "Penstock"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["*.py", "pictures/*"]
html_theme = "furo"
html_title = "Penstock"
html_copy_source = html_show_sphinx = html_show_copyright = False
myst_heading_anchors = 4
"""As deep as links go; the anchors are those that repositories show."""
suppress_warnings = ["misc.highlighting_failure"]
"""Code with `…`, or what a command printed, is shown as it is."""

_SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n)*)", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md[)#]")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:README|CHANGELOG|LICENSE)(?:\.md)?(?:#[\w-]+)?\)")


def navigation(index: str) -> str:
    """Return the site's navigation: the sections of the index, each page under the last one that names it."""
    section_of = {page: title for title, text in _SECTION.findall(index) for page in _PAGE.findall(text)}
    trees = []
    for title, text in _SECTION.findall(index):
        pages = [page for page in dict.fromkeys(_PAGE.findall(text)) if section_of[page] == title]
        trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]))
    return "\n\n".join(trees)


def _read(_app: object, page: str, source: list[str]) -> None:
    """Leave out links to what is no page of the site, and add the navigation to the index."""
    source[0] = _OUTSIDE.sub(r"\1", source[0])
    if page == root_doc:
        source[0] += f"\n{navigation(source[0])}\n"


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)  # type: ignore[attr-defined]
