"""What publishing a small batch into a Delta or Iceberg table takes of the processor after many commits."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from tests.conformance.delta_rig import DeltaRig
from tests.conformance.iceberg_rig import IcebergRig
from tests.conformance.lake_rig import Cleaned, LakeRig

from bench.measuring import SPOILT, Bench, require_content
from bench.result import PENSTOCK, Case, Table
from penstock.sink.delta.log import DeltaLog, delta_log
from penstock.testing.conformance.bench import Bench as ByHand
from penstock.testing.conformance.bench import publish

COMMITS = (10, 100, 1_000, 10_000)
SMALL, EVERY, PERIODS = 40, 10, 7
LOG_KEPT_MS = 2_000
"""The table's log is kept twice as long as its versions can be read."""


def measure(bench: Bench) -> Iterator[Table]:
    """With `maintenance`, and without."""
    yield _commits(bench)
    yield _unkept(bench)


class _KeptDelta(Cleaned, DeltaRig):
    """Compacted, and vacuumed, as `maintenance` does; all former versions are old enough, and soon what the log has of them."""

    every = EVERY

    def log(self) -> DeltaLog:
        return delta_log(self.account(), vacuum_after_ms=LOG_KEPT_MS // 2)


class _KeptIceberg(Cleaned, IcebergRig):
    """Compacted, and its snapshots expired."""

    every = EVERY


def _commits(bench: Bench) -> Table:
    return _after_commits(
        bench,
        {"Delta": _KeptDelta, "Iceberg": _KeptIceberg},
        COMMITS,
        name="commits",
        title=f"A batch of {SMALL} rows published after so many commits, `maintenance` after every {EVERY} (CPU)",
        note=f"Without Spark: what `publish` takes of the processor. A round is the mean of {EVERY} batches and their one round "
        "of maintenance: compaction, and removal of what only former versions have. The log is kept for "
        f"{LOG_KEPT_MS // 1000} s, as Delta's is where `vacuum_after` has passed twice.",
    )


def _unkept(bench: Bench) -> Table:
    return _after_commits(
        bench,
        {"Delta": DeltaRig, "Iceberg": IcebergRig},
        COMMITS[:-1],
        name="unkept",
        title="The same without `maintenance` (CPU)",
        note="Nobody compacts the table: it has as many files, and an Iceberg table as many snapshots, as commits. Their "
        "libraries read all of that at each commit.",
    )


def _after_commits(
    bench: Bench, rigs: Mapping[str, type[LakeRig]], commits: Sequence[int], *, name: str, title: str, note: str
) -> Table:
    after = tuple(bench.sized(number, 2 + place) for place, number in enumerate(commits))
    found = {kind: _publish_ms(bench, rig(bench.scratch / f"{name}-{kind}"), after) for kind, rig in rigs.items()}
    return Table(
        name=name,
        title=title,
        unit="ms",
        cases=tuple(
            Case(name=f"{kind}, after {number:,} commits", figures={PENSTOCK: took})
            for kind, each in found.items()
            for number, took in zip(commits, each, strict=True)
        ),
        comparison="alone",
        note=note,
    )


def _publish_ms(bench: Bench, rig: LakeRig, after: tuple[int, ...]) -> list[list[float]]:
    """For each of those numbers of commits the means of what the next ones took of the processor, one for each period."""
    rig.directory.mkdir()
    delivering = ByHand(rig)
    sink, periods = delivering.sink(), bench.sized(PERIODS, 1)
    took = list[float]()
    for number in range(after[-1] + periods * EVERY):
        rows = delivering.rows(range(SMALL * number, SMALL * number + SMALL))
        given = rows[1:] if bench.spoilt and number == SPOILT % (after[-1] + 1) else rows
        shown = delivering.decide((rows, delivering.stage_here(sink, given, batch_id=number)), batch_id=number)
        started = time.process_time()
        publish(sink, shown.publication)
        took.append(1000 * (time.process_time() - started))
    delivering.close()
    seen = sorted(row["id"] for row in rig.read_back())
    require_content(seen, list(range(SMALL * len(took))), writer=PENSTOCK)
    means = [[mean(took[at : at + EVERY]) for at in range(number, number + periods * EVERY, EVERY)] for number in after]
    shutil.rmtree(rig.directory)
    return means
