"""What the documents claim about speed is no more than the slower of the kept runs shows."""

from pathlib import Path

import pytest
from bench.claims import too_good, unproven
from bench.kept import kept_runs
from bench.page import page
from bench.parts import PARTS

from tests.architecture.reading import ROOT, markdown_files, name_of

PAGE = ROOT / "docs" / "benchmarks.md"


def test_the_page_of_benchmarks_shows_the_kept_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text, kept_runs(), list(PARTS)), 'run `make bench ARGS="--render"`'


def test_every_kept_run_is_of_a_part() -> None:
    assert set(kept_runs()) <= set(PARTS)


@pytest.mark.parametrize("path", markdown_files(), ids=name_of)
def test_no_document_claims_more_than_the_slower_run_shows(path: Path) -> None:
    assert list(too_good(path.read_text(encoding="utf-8"), kept_runs())) == []


@pytest.mark.parametrize("path", [path for path in markdown_files() if path != PAGE], ids=name_of)
def test_every_ratio_in_a_document_names_its_comparison(path: Path) -> None:
    """The notes of the benchmarks page tell of experiments, too, which nobody repeats."""
    assert unproven(path.read_text(encoding="utf-8")) == []
