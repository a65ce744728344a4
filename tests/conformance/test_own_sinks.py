"""A user-written sink passes the suite as a user runs it, and the suite finds what is wrong with one."""

import pytest
from tests.conformance import own_sinks
from tests.conformance.own_sinks import LinesRig

from penstock.errors import PublishFailed
from penstock.faults import FaultKind, points
from penstock.testing import OwnSinkContract
from penstock.testing.conformance import Bench


class TestLines(OwnSinkContract):
    """Rows and mark in one transaction; the page docs/howto/own_sink.md has an idempotent one."""

    rig_type = LinesRig


CRASHING = [
    (own_sinks.MarkApartRig, "own.mark", FaultKind.KILL, "rows too many"),
    (own_sinks.MarkApartRig, "own.mark", FaultKind.ERROR, "rows too many"),
    (own_sinks.MarkElsewhereRig, "own.commit", FaultKind.KILL, "rows lost"),
    (own_sinks.AlwaysCommittingRig, "own.mark", FaultKind.ERROR, "rows too many"),
    (own_sinks.WithoutTransactionRig, "own.mark", FaultKind.KILL, "rows too many"),
    (own_sinks.NotIdempotentRig, "own.mark", FaultKind.KILL, "rows too many"),
]


@pytest.mark.parametrize(
    ("rig_type", "point", "kind", "found"), CRASHING, ids=lambda value: getattr(value, "__name__", getattr(value, "value", value))
)
def test_a_wrong_sink_is_caught_by_a_crash(tmp_path, rig_type, point, kind, found):
    (tmp_path / "rig").mkdir()
    chosen = next(other for other in points() if other.name == point)
    with pytest.raises(AssertionError, match=f"[1-9][0-9]* {found}"):
        OwnSinkContract().test_a_fault_at_any_step(rig_type(tmp_path / "rig"), tmp_path, chosen, kind)


WRONG = [
    (own_sinks.ForgetfulRig, "test_publishing_again_changes_nothing", {}),
    (own_sinks.DistinctRig, "test_damage_is_found", {"damage": "doubled"}),
    (own_sinks.WithoutTransactionRig, "test_readers_see_whole_things_only", {}),
    (own_sinks.HalfReadRig, "test_what_was_decided_is_shown_value_by_value", {}),
]


@pytest.mark.parametrize(("rig_type", "test", "arguments"), WRONG, ids=lambda value: getattr(value, "__name__", None))
def test_a_wrong_sink_is_caught(tmp_path, rig_type, test, arguments):
    bench = Bench(rig_type(tmp_path))
    with pytest.raises((AssertionError, PublishFailed)):
        getattr(OwnSinkContract(), test)(bench, **arguments)
    bench.close()
