"""Crash tests at every fault point of a sink, with every kind of fault: another driver recovers, and the content is exact."""

import logging
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from penstock.core.faults import FaultKind, FaultPoint, arm, points
from penstock.errors import PenstockError
from penstock.testing.conformance.bench import Bench
from penstock.testing.conformance.rig import SinkRig, require_equal
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import RAISED, end, live, publish_alone, rows_of, start, verify

_log = logging.getLogger(__name__)
_STALL = "stall:0.3"
_LOOK_S = 0.005
_KILLED = -signal.SIGKILL


class CrashContract(Examined):
    """Subclass it as `Test…` with `fault_parts`: prefixes of the sink's fault points (`mysink` for `mysink.write`).

    Each test delivers batch 0, lets a process fail while it opens or delivers batch 1, and then recovers and delivers batches 1
    and 2. The rig must stage so that every point is reached: pieces on disk, not inline.
    """

    fault_parts: tuple[str, ...] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        parts = getattr(metafunc.cls, "fault_parts", ())
        mine = [point for point in points() if point.name.partition(".")[0] in parts]
        if "kind" in metafunc.fixturenames:
            cases = [(point, kind) for point in mine for kind in point.kinds]
            metafunc.parametrize(("point", "kind"), cases, ids=[f"{point.name}={kind.value}" for point, kind in cases])
        elif "point" in metafunc.fixturenames:
            metafunc.parametrize("point", mine, ids=[point.name for point in mine])

    def test_a_fault_at_any_step(self, rig: SinkRig, tmp_path: Path, point: FaultPoint, kind: FaultKind) -> None:
        """Killed, failed, cut off from the answer, torn or overtaken: nothing is lost, doubled or left behind.

        If the driver first reaches the point while it opens, a second process fails where it reaches the point in a delivery.
        """
        live(rig, [0], tidy=False)
        opened = tmp_path / "opened"
        _fail(rig, tmp_path / "first", point, kind, number=1, once_open=partial(_note, tmp_path / "first", opened))
        assert _hit(tmp_path / "first"), f"delivering a batch never reached {point.name}: stage on disk, or declare it elsewhere"
        _require_recovered(rig, upto=2)
        if not opened.exists():
            _fail(rig, tmp_path / "again", point, kind, number=3, delivering=True)
            _require_recovered(rig, upto=4)

    def test_a_second_crash_during_recovery(self, rig: SinkRig, tmp_path: Path, point: FaultPoint) -> None:
        """The process that recovers is killed as well, at a random point."""
        seed = random.randrange(1 << 32)  # noqa: S311 - no secret
        _log.warning("seed %d", seed)
        mine = [other for other in points() if other.name.partition(".")[0] in self.fault_parts]
        second = random.Random(seed).choice(mine)  # noqa: S311 - no secret
        live(rig, [0], tidy=False)
        _fail(rig, tmp_path / "first", point, FaultKind.KILL, number=1)
        assert _hit(tmp_path / "first")
        end(start(live, rig, [1], faults=f"{second.name}=kill"))
        _require_recovered(rig, upto=2)

    def test_publishers_in_processes(self, bench: Bench) -> None:
        sink, rows = bench.sink(), bench.rows(range(200))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        sink.close()
        running = [start(publish_alone, bench.rig, shown.publication) for _ in range(3)]
        assert [end(process) for process in running] == [0, 0, 0]
        bench.require_shown(shown)
        assert bench.verify(bench.sink()).ok


def _fail(
    rig: SinkRig,
    fired: Path,
    point: FaultPoint,
    kind: FaultKind,
    *,
    number: int,
    delivering: bool = False,
    once_open: Callable[[], None] | None = None,
) -> None:
    """Let a process fail in delivering batch `number`, if `delivering` only once open. A fired fault leaves a file in `fired`."""
    fired.mkdir()
    faults = f"{point.name}={_STALL if kind is FaultKind.STALL else kind.value}"
    life = partial(live, once_open=partial(arm, faults) if delivering else once_open)
    process = start(life, rig, [number], faults="" if delivering else faults, fired=fired)
    if kind is FaultKind.STALL:
        _overtake(rig, process, fired, number)
    code = end(process)
    killed = kind in {FaultKind.KILL, FaultKind.TORN} and _hit(fired)
    assert code in ([_KILLED] if killed else [0, RAISED])


def _overtake(rig: SinkRig, process: BaseProcess, fired: Path, number: int) -> None:
    while process.is_alive() and not _hit(fired):
        process.join(_LOOK_S)
    with suppress(PenstockError):  # one of the two fences the other, whichever opened last
        live(rig, [number, number + 1])


def _hit(fired: Path) -> bool:
    return any(fired.iterdir())


def _note(fired: Path, opened: Path) -> None:
    if not _hit(fired):
        opened.touch()


def _require_recovered(rig: SinkRig, *, upto: int) -> None:
    live(rig, [upto - 1, upto])
    live(rig, [upto])
    require_equal(rig.read_back(), rig.settle([rows_of(number, rig) for number in range(upto + 1)]))
    report = verify(rig)
    assert report.ok, report
    assert list(rig.leftovers()) == []
