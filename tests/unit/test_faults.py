"""PENSTOCK_FAULTS: what it arms, and that a name that could never fire is refused instead of passed over."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.core import faults
from penstock.core.faults import Armed, FaultKind, FaultPoint, arm, armed, parse, points
from penstock.errors import Usage
from penstock.run.assembly import assemble
from penstock.run.fault_points import import_all, require_known


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def test_what_a_text_arms() -> None:
    assert parse("") == ()
    assert parse(" sqlite.mark=error@2, rename.move=stall:0.5 ,") == (
        Armed("sqlite.mark", FaultKind.ERROR, 2, 0.0),
        Armed("rename.move", FaultKind.STALL, 1, 0.5),
    )


@pytest.mark.parametrize("text", ["sqlite.mark", "sqlite.mark=", "sqlite.mark=burn", "sqlite.mark=kill@x", "sqlite.mark=kill@0"])
def test_what_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(Usage, match=f"PENSTOCK_FAULTS holds '{text}', expected .* of kill, error, lost, stall, torn"):
        arm(text)
    assert armed() == ()


def test_two_faults_of_one_point_are_refused_because_one_would_be_forgotten() -> None:
    with pytest.raises(Usage, match=r"names the point sqlite\.mark twice"):
        arm("sqlite.mark=error@1,rename.move=error,sqlite.mark=kill@2")


def test_a_point_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    arm("sqlite.mark=error,sqlite.comit=kill")
    with pytest.raises(Usage) as refused:
        require_known()
    assert "names the point 'sqlite.comit', expected one of " in refused.value.message
    assert import_all() == []
    for point in points():
        assert f" {point.name}" in refused.value.message


def test_a_kind_that_the_point_has_not_is_refused() -> None:
    arm("sqlite.mark=torn")
    with pytest.raises(Usage, match=r"arms sqlite\.mark with torn, expected one of kill, error, lost, stall"):
        require_known()


def test_every_point_with_every_kind_of_it_may_be_armed_and_so_may_those_of_a_users_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    import_all()
    monkeypatch.setattr(faults, "_points", dict(faults._points))
    own = FaultPoint("usersink.write", "What a user-written sink declares in its own module.")
    assert own in points()
    for point in points():
        for kind in point.kinds:
            arm(f"{point.name}={kind.value}")
            require_known()


def test_nothing_is_opened_with_a_fault_armed_that_could_never_fire(tmp_path: Path) -> None:
    lake = penstock.Parquet(accounts={"only": tmp_path / "lake"})
    plan = penstock.Delivery("flights", home=tmp_path / "home", sinks={"lake": lake}).plan
    arm("parquet.publish=kill")
    with pytest.raises(Usage, match=r"parquet\.publish"):
        assemble(plan)
    assert list(tmp_path.iterdir()) == []


def test_a_stall_ends_when_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_points", dict(faults._points))
    monkeypatch.setenv(faults.ONCE_VARIABLE, str(tmp_path))
    point, claimed = FaultPoint("usersink.wait", "A step of this test."), tmp_path / "usersink.wait=stall"
    arm("usersink.wait=stall:100")
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(go_through, point)
        while not claimed.exists():
            assert not stalled.done()
        assert not stalled.done()
        claimed.with_name("usersink.wait=stall.over").touch()
        assert stalled.result(timeout=60)


def go_through(point: FaultPoint) -> bool:
    with point.around():
        return True
