"""Every screen on a narrow and on a wide terminal, word for word: `tests/unit/screens/regenerate.py` writes them anew."""

import time
from collections.abc import Iterator

import pytest
from tests.unit.screen_values import FOLDER, SCREENS, WIDTHS, shown


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str, width: int) -> None:
    text = shown(name, width=width)
    assert text == (FOLDER / f"{name}-{width}.txt").read_text()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_a_batch_has_one_line(width: int) -> None:
    lines = shown("run", width=width).splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("batch ")]
    assert starts == [0, 1, 2, 3]
