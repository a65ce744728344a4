"""The page in a real browser: nothing in it runs or is refused, and axe has no objection, wide and narrow, light and dark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import chromium
from tests.servers.server import NotInstalledError
from tests.unit.page_world import NOW_MS, make_world

from penstock.observe.page.report import report
from penstock.observe.page.serving import Pages
from penstock.observe.page.watched import Watched
from penstock.run.pipeline import Pipeline


@pytest.fixture(name="shop", scope="module")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    file = make_world(tmp_path_factory.mktemp("world"))
    return Pipeline.from_file(file).watched()


def of_report(shop: Watched) -> str:
    page = report([shop], now_ms=NOW_MS)
    assert "<details>" in page
    return page.replace("<details>", "<details open>")


def served(path: str) -> Callable[[Watched], str]:
    return lambda shop: Pages([shop], now_ms=lambda: NOW_MS).page(path, {})


PAGES = {
    "report": (of_report, 1280, False),
    "overview": (served("/"), 400, True),
    "pipeline": (served("/pipelines/shop"), 400, False),
    "history": (served("/pipelines/shop/history"), 1280, True),
    "batch": (served("/pipelines/shop/positions/20"), 400, True),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everyone(shop: Watched, name: str, tmp_path: Path) -> None:
    page, width, dark = PAGES[name]
    try:
        found = chromium.looked_at(page(shop), tmp_path, width=width, dark=dark)
    except NotInstalledError as missing:
        pytest.skip(str(missing))
    assert found["violations"] == []
    assert found["fits"], "the page is wider than its window"
    assert found["passes"] > 10


def test_nothing_in_a_report_runs_or_is_refused(shop: Watched, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(of_report(shop), encoding="utf-8")
    try:
        document, console = chromium.opened(file)
    except NotInstalledError as missing:
        pytest.skip(str(missing))
    assert console == ""
    assert "alert(1)" in document
    assert "<script" not in document
