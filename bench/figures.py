"""Compares writers within a run, and the runs of a part: of two runs the one counts in which Penstock did worse."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.result import Case, Comparison, Run, Table


@dataclass(frozen=True)
class Spread:
    """The median of all rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One of our writers against one peer in one run, or alone."""

    ours: Spread
    peer: Spread | None
    compared: Spread


@dataclass(frozen=True, kw_only=True)
class Row:
    """The same comparison in all runs: `slower` is the run in which Penstock did worse, `other` the other one."""

    case: Case
    way: str
    peer: str | None
    slower: Figure
    other: Figure | None


def spread(values: Sequence[float]) -> Spread:
    """Of one figure per round."""
    return Spread(statistics.median(values), min(values), max(values))


def tables_named(runs: Sequence[Run], name: str) -> list[Table]:
    """That table of each run that measured the same as the newest one: under the same title, in the same unit."""
    tables = [table for run in runs for table in run.tables if table.name == name]
    like = [(table.title, table.unit, table.comparison) for table in tables]
    return [table for table, what in zip(tables, like, strict=True) if what == like[-1]]


def rows(tables: Sequence[Table]) -> Iterator[Row]:
    """Every comparison of one table, given as each run measured it, the newest last."""
    newest = tables[-1]
    for case in newest.cases:
        for way in (name for name in newest.ours if name in case.figures):
            for peer in newest.peers(case) or (None,):
                found = [_in_run(table, case, way, peer) for table in tables]
                seen = sorted((figure for figure in found if figure), key=lambda each: _badness(newest.comparison, each))
                yield Row(case=case, way=way, peer=peer, slower=seen[-1], other=seen[0] if len(seen) > 1 else None)


def _in_run(table: Table, like: Case, way: str, peer: str | None) -> Figure | None:
    """None where this run did not measure the same: another table, amount or writer."""
    for case in table.cases:
        if (case.name, case.amount) == (like.name, like.amount) and {way, peer} - {None} <= set(case.figures):
            return _figure(table.comparison, case.figures[way], case.figures[peer] if peer else None)
    return None


def _figure(comparison: Comparison, ours: Sequence[float], peer: Sequence[float] | None) -> Figure:
    """Rounds are compared one by one: both writers ran in the same minute."""
    if peer is None:
        return Figure(ours=spread(ours), peer=None, compared=spread(ours))
    compared = [_compare(comparison, mine, theirs) for mine, theirs in zip(ours, peer, strict=True)]
    return Figure(ours=spread(ours), peer=spread(peer), compared=spread(compared))


def _compare(comparison: Comparison, ours: float, peer: float) -> float:
    if comparison == "tax":
        return 100 * (ours / peer - 1)
    return ours - peer if comparison == "added" else peer / ours


def _badness(comparison: Comparison, figure: Figure) -> float:
    """The larger, the worse for Penstock."""
    return -figure.compared.median if comparison == "times" and figure.peer is not None else figure.compared.median
