"""Every fault point of a sink with every kind: a driver fails there, another recovers, and the content is exact."""

import logging
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.faults import FaultKind, FaultPoint, points
from penstock.testing.conformance.bench import Bench
from penstock.testing.conformance.processes import TOLD, end, publish_in_processes, start
from penstock.testing.conformance.rig import SinkRig
from penstock.testing.conformance.rows import make_rows, require_equal
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import live, rows_of, verify

_log = logging.getLogger(__name__)
_STALL = "stall:0.3"
_LOOK_S = 0.005
_KILLED = -signal.SIGKILL


class CrashContract(Examined):
    """Subclass it as `Test…` with `fault_parts`: how the names of the sink's fault points begin (`mysink` for `mysink.write`).

    Each test delivers batch 0, lets a process fail while it delivers batch 1, and then recovers and delivers batches 1 and 2.
    The rig must stage in such a way that every point is reached: pieces on disk, not inline.
    """

    fault_parts: tuple[str, ...] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each point and kind."""
        parts = getattr(metafunc.cls, "fault_parts", ())
        mine = [point for point in points() if point.name.partition(".")[0] in parts]
        if "kind" in metafunc.fixturenames:
            cases = [(point, kind) for point in mine for kind in point.kinds]
            metafunc.parametrize(("point", "kind"), cases, ids=[f"{point.name}={kind.value}" for point, kind in cases])
        elif "point" in metafunc.fixturenames:
            metafunc.parametrize("point", mine, ids=[point.name for point in mine])

    def test_a_fault_at_any_step(self, rig: SinkRig, tmp_path: Path, point: FaultPoint, kind: FaultKind) -> None:
        """Killed, failed, cut off from the answer, torn or overtaken: nothing is lost, nothing is twice, nothing is left."""
        live(rig, [0], tidy=False)
        code = _fail(rig, tmp_path / "fired", point, kind, meanwhile=kind is FaultKind.STALL)
        assert code in ([_KILLED] if kind in {FaultKind.KILL, FaultKind.TORN} else [0, TOLD])
        _require_recovered(rig)

    def test_a_second_crash_during_recovery(self, rig: SinkRig, tmp_path: Path, point: FaultPoint) -> None:
        """The process that recovers is killed as well, anywhere."""
        seed = random.randrange(1 << 32)  # noqa: S311 - no secret
        _log.warning("seed %d", seed)
        mine = [other for other in points() if other.name.partition(".")[0] in self.fault_parts]
        second = random.Random(seed).choice(mine)  # noqa: S311 - no secret
        live(rig, [0], tidy=False)
        assert _fail(rig, tmp_path / "first", point, FaultKind.KILL) == _KILLED
        end(start(live, rig, [1], faults=f"{second.name}=kill"))
        _require_recovered(rig)

    def test_publishers_in_processes(self, bench: Bench) -> None:
        """Several drivers in several processes publish the same at once."""
        sink, rows = bench.sink(), make_rows(range(200))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        sink.close()
        assert publish_in_processes(bench.rig, shown.publication, processes=3) == [0, 0, 0]
        bench.require_shown(shown)
        assert bench.verify(bench.sink()).ok


def _fail(rig: SinkRig, fired: Path, point: FaultPoint, kind: FaultKind, *, meanwhile: bool = False) -> int:
    fired.mkdir()
    process = start(live, rig, [1], faults=f"{point.name}={_STALL if kind is FaultKind.STALL else kind.value}", fired=fired)
    if meanwhile:
        while process.is_alive() and not list(fired.iterdir()):
            process.join(_LOOK_S)
        with suppress(PenstockError):  # one of the two fences the other, whichever opened last
            live(rig, [1, 2])
    code = end(process)
    assert list(fired.iterdir()), f"delivering a batch never reached {point.name}: stage on disk, or declare it elsewhere"
    return code


def _require_recovered(rig: SinkRig) -> None:
    live(rig, [1, 2])
    live(rig, [2])
    require_equal(rig.read_back(), rig.settle([rows_of(0), rows_of(1), rows_of(2)]))
    report = verify(rig)
    assert report.ok, report
    assert list(rig.leftovers()) == []
