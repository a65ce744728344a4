"""The benchmarks page is a pure function of the kept runs, shows the run in which Penstock did worse, and loses nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.aims import AIMS
from bench.claims import Key, parse_key, read, too_good, unproven
from bench.figures import rows, spread
from bench.kept import KEPT, keep, kept_runs
from bench.page import page, section
from bench.result import PENSTOCK, Case, Run, Table, from_json, to_json

OLD = """# Benchmarks

By hand.

<!-- aims: written by make bench -->
| question | aim | reached |
|---|---|---|
| 100,000 rows into PostgreSQL against JDBC | 3x | about 2x |
<!-- end of aims -->

<!-- part: tax -->

An old table.

<!-- part: ledger -->

Another one.

<!-- end of parts -->

## Notes

By hand, too: 9.9x.
"""


def a_run(ours: list[float], peer: list[float], **changed: object) -> Run:
    case = Case(name="100,000 rows", figures={PENSTOCK: ours, "the same pass, at-least-once": peer}, amount=100_000)
    table = Table(name="tax", title="The tax", unit="ms", cases=(case,), amounts="rows")
    return Run(began="2026-01-02 03:04", minutes=4.2, rounds=3, versions={"PySpark": "4.3"}, tables=(replace(table, **changed),))


FAST, SLOW = a_run([100, 110, 90], [200, 220, 180]), a_run([100, 120, 95], [110, 126, 95])


def test_results_survive_json() -> None:
    assert from_json(to_json([FAST, SLOW])) == [FAST, SLOW]
    assert "[100, 110, 90]" in to_json([FAST])


def test_a_spread_has_the_median_and_both_ends() -> None:
    found = spread([3, 1, 9, 2, 4])
    assert (found.median, found.low, found.high) == (3, 1, 9)


@pytest.mark.parametrize("runs", [[FAST, SLOW], [SLOW, FAST]])
@pytest.mark.parametrize(
    ("comparison", "slower", "other"), [("times", 1.05, 2.0), ("tax", -4.762, -50.0), ("added", -6.0, -100.0)]
)
def test_the_run_counts_in_which_penstock_did_worse(runs: list[Run], comparison: str, slower: float, other: float) -> None:
    (row,) = rows([replace(run.tables[0], comparison=comparison) for run in runs])
    assert row.other is not None
    assert row.slower.compared.median == pytest.approx(slower, abs=0.001)
    assert row.other.compared.median == pytest.approx(other, abs=0.1)


def test_rounds_are_compared_one_by_one() -> None:
    """A slow minute hits both writers: the ratio of medians would say 0.1."""
    (row,) = rows(a_run([10, 100, 1000], [10, 100, 1000]).tables)
    assert row.slower.compared == spread([1, 1, 1])


def test_figures_without_a_peer_are_shown_alone_and_the_longer_counts() -> None:
    alone = [
        Table(name="t", title="T", unit="s", cases=(Case(name="", figures={PENSTOCK: taken}),), comparison="alone")
        for taken in ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    ]
    (row,) = rows(alone)
    assert (row.peer, row.slower.ours.median, row.other and row.other.ours.median) == (None, 4, 2)


def test_each_of_our_writers_is_set_against_each_peer() -> None:
    figures = {PENSTOCK: [1.0], "ours too": [2.0], "a": [4.0], "b": [8.0]}
    table = Table(name="t", title="T", unit="s", cases=(Case(name="", figures=figures),), ours=(PENSTOCK, "ours too"))
    assert {(row.way, row.peer): row.slower.compared.median for row in rows([table])} == {
        (PENSTOCK, "a"): 4,
        (PENSTOCK, "b"): 8,
        ("ours too", "a"): 2,
        ("ours too", "b"): 4,
    }


def test_a_run_of_other_sizes_is_not_compared() -> None:
    text = section([a_run([1, 1, 1], [9, 9, 9], title="Smaller"), SLOW])
    assert "other run" not in text
    assert "1.05x (1.00x to 1.10x)" in text


def test_a_section_says_when_and_with_what() -> None:
    text = section([FAST, SLOW])
    assert "Measured 2026-01-02 03:04 UTC (4 min) and 2026-01-02 03:04 UTC (4 min) in 3 rounds with PySpark 4.3." in text
    assert "| 100 (95.0 to 120) | 1,000,000 | 110 (95.0 to 126) | 1.05x (1.00x to 1.10x) | 2.00x |" in text
    assert "run once only" not in text
    assert "run once only" in section([FAST])


def test_a_part_is_replaced_and_the_rest_of_the_page_stays() -> None:
    changed = page(OLD, {"tax": [FAST, SLOW]}, ["ledger", "tax"])
    assert "An old table." not in changed
    for kept in (
        "By hand.",
        "Another one.",
        "By hand, too: 9.9x.",
        "| 100,000 rows into PostgreSQL against JDBC | 3x | about 2x |",
    ):
        assert kept in changed
    assert changed.index("<!-- part: ledger -->") < changed.index("<!-- part: tax -->")
    assert page(changed, {"tax": [FAST, SLOW]}, ["ledger", "tax"]) == changed


def test_an_aim_shows_what_the_slower_run_reached() -> None:
    runs = [replace(run, tables=(replace(run.tables[0], comparison="tax"),)) for run in (FAST, SLOW)]
    (aim,) = (aim for aim in AIMS if KEY in aim.keys.values())
    shown = f"| {aim.question} | {aim.aim} | yes, -4.8 % |"
    assert shown in page(OLD, {"tax": runs}, ["ledger", "tax"])


def test_keys_are_written_in_documents_as_they_are_read() -> None:
    keys = [key for aim in AIMS for key in aim.keys.values()]
    assert [parse_key(str(key)) for key in keys] == keys


KEY = Key("tax", "tax", "100,000 rows", "the same pass, at-least-once")


@pytest.mark.parametrize(
    ("claim", "comparison", "fits"),
    [
        ("1.05x", "times", True),
        ("1.1x", "times", False),
        ("1x", "times", True),
        ("1.06x", "times", False),
        ("2.00x", "times", False),
        ("-4.8 %", "tax", True),
        ("-5 %", "tax", False),
        ("+3 %", "tax", True),
        ("-50 %", "tax", False),
    ],
)
def test_a_claim_is_no_better_than_the_slower_run(claim: str, comparison: str, *, fits: bool) -> None:
    kept = {"tax": [replace(run, tables=(replace(run.tables[0], comparison=comparison),)) for run in (SLOW, FAST)]}
    assert (list(too_good(f"It is {claim}<!-- bench: {KEY} --> of it.", kept)) == []) is fits


def test_a_claim_about_what_was_not_measured_is_refused() -> None:
    assert list(too_good(f"1.0x<!-- bench: {KEY} -->", {})) != []
    with pytest.raises(KeyError, match="no comparison"):
        read({"tax": [FAST]}, replace(KEY, case="another"))


def test_every_ratio_names_its_comparison() -> None:
    assert unproven(f"1.0x<!-- bench: {KEY} --> and 2.5x, v1.0x, 0x1f") == ["2.5x"]


def test_two_runs_of_a_part_are_kept(tmp_path: Path) -> None:
    for minutes in range(KEPT + 1):
        keep("tax", replace(FAST, minutes=minutes), tmp_path)
    keep("ledger", SLOW, tmp_path)
    assert {part: [run.minutes for run in runs] for part, runs in kept_runs(tmp_path).items()} == {"ledger": [4.2], "tax": [1, 2]}
