"""Steps that a recovery takes as well: here they fail in a run that has nothing to recover, while its first batch is delivered.

The crash suite lets a process fail that recovers batch 0 before it delivers batch 1; what both do fails in the recovery there,
where the target shows everything already. Bugs 12 and 15 of other systems are bugs of the delivery itself.
"""

from pathlib import Path

import pytest
from tests.conformance.test_parquet_conformance import FewFilesRig
from tests.conformance.test_sqlite_conformance import RidingRig, SpooledRig, UpsertRig

from penstock.testing.conformance import SinkRig, require_equal
from penstock.testing.conformance.story import RAISED, end, live, rows_of, start, verify

KILLED = -9
STEPS = [
    (SpooledRig, "sqlite.begin", 1),
    (SpooledRig, "sqlite.commit", 1),
    (SpooledRig, "spool.discard", 1),
    (UpsertRig, "sqlite.commit", 1),
    (RidingRig, "ledger.sqlite_insert", 2),
    (RidingRig, "ledger.sqlite_commit", 2),
    (FewFilesRig, "parquet.marker.read", 1),
    (FewFilesRig, "claim.write", 1),
    (FewFilesRig, "claim.place", 1),
]
"""The ledger's second entry is the first decision."""


@pytest.mark.parametrize("kind", ["kill", "error", "lost"])
@pytest.mark.parametrize(("rig_of", "point", "occurrence"), STEPS, ids=[f"{rig.__name__}-{point}" for rig, point, _ in STEPS])
def test_the_first_batch_survives(tmp_path: Path, rig_of: type[SinkRig], point: str, occurrence: int, kind: str) -> None:
    fired, place = tmp_path / "fired", tmp_path / "rig"
    fired.mkdir()
    place.mkdir()
    rig = rig_of(place)
    code = end(start(live, rig, [0, 1], faults=f"{point}={kind}@{occurrence}", fired=fired))
    assert code in ([KILLED] if kind == "kill" else [0, RAISED])
    assert list(fired.iterdir()), f"delivering a batch never reached {point}"
    live(rig, [0, 1])
    live(rig, [1])
    require_equal(rig.read_back(), rig.settle([rows_of(0), rows_of(1)]))
    report = verify(rig)
    assert report.ok, report
    assert list(rig.leftovers()) == []
