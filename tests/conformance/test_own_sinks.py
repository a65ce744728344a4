"""A user-written sink passes the suite as a user runs it, and the suite finds what is wrong with one."""

from dataclasses import replace

import pytest
from tests.conformance import own_sinks
from tests.conformance.own_sinks import IdempotentRig, LinesRig

from penstock.core import faults
from penstock.core.faults import FaultKind, points
from penstock.core.model import LedgerId, Position
from penstock.errors import Failed, LedgerMismatch, PublishFailed, Retryable
from penstock.testing import OwnSinkContract
from penstock.testing.conformance import DAMAGES, PIPELINE, Bench


class TestLines(OwnSinkContract):
    """Rows and mark in one transaction; the page docs/howto/own_sink.md has an idempotent one."""

    rig_type = LinesRig
    damages = DAMAGES


def test_a_crash_between_rows_and_mark_leaves_the_target_to_the_ledger_that_wrote_the_rows(tmp_path):
    """Another ledger counts other positions, so that its rows would come beside those that are there."""
    rig, bench = IdempotentRig(tmp_path), Bench(IdempotentRig(tmp_path))
    sink, rows = bench.sink(), bench.rows(range(50))
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
    faults.arm("own.mark=error@1")
    with pytest.raises(Retryable):
        sink.publish(shown.publication)
    faults.arm("")
    assert rig.make().high_water_mark("", pipeline=PIPELINE).ledger_id == shown.publication.ledger_id
    other = replace(shown.publication, ledger_id=LedgerId("b" * 32), position=Position(7))
    with pytest.raises(LedgerMismatch):
        bench.sink().publish(other)
    bench.require_shown(shown)
    assert not bench.sink().publish(shown.publication).already
    bench.require_shown(shown)
    bench.close()


@pytest.mark.parametrize(("raised", "told"), [(ConnectionRefusedError, Retryable), (TimeoutError, Retryable), (KeyError, Failed)])
def test_a_target_that_does_not_answer_a_start_is_to_be_tried_again(tmp_path, monkeypatch, raised, told):
    """A run that waited for it in vain ended with 75: the next start must not end with 1."""

    def away(_):
        raise raised("away")

    monkeypatch.setattr(own_sinks.Lines, "exists", away)
    with pytest.raises(told, match=rf"raised .*{raised.__name__}") as error:
        LinesRig(tmp_path).make().high_water_mark("", pipeline=PIPELINE)
    assert type(error.value) is told


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
