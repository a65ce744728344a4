"""What is told when several sinks do not publish a batch."""

import json
import sys
import traceback

import pytest
from tests.unit.commit_bench import Bench, trouble

from penstock.cli.output import show_error
from penstock.commit.executor import all_published
from penstock.core.model import BatchId
from penstock.errors import (
    ContentConflict,
    Fenced,
    NotPublishedYet,
    OutcomeUnknown,
    PublishFailed,
    Refused,
    Retryable,
    StagedDataLost,
    Usage,
)
from penstock.sink.concurrent import map_concurrently
from penstock.support.combined_error import merge, urgency


class Overtaken(Retryable):
    """A refinement of a module's own."""


def test_both_sinks_are_named_with_their_errors(bench: Bench) -> None:
    coordinator = bench.opened()
    bench.steps.failing["promote files"] = [trouble() for _ in range(5)]
    bench.steps.failing["transact table"] = [ContentConflict("Table t holds 2 rows, expected 1.", remedy="Look who wrote there.")]
    with pytest.raises(ContentConflict, match="Batch 0 is decided, and 2 sinks did not publish it") as raised:
        bench.deliver(coordinator, 0)
    told = raised.value.message
    assert told.index("Sink 'table': ContentConflict: Table t holds 2") < told.index("Sink 'files': NotPublishedYet: Sink")
    assert raised.value.remedy.startswith("Look who wrote there. Wait.")
    assert {sink: fields["kind"] for sink, fields in raised.value.by_sink.items()} == {
        "table": "ContentConflict",
        "files": "NotPublishedYet",
    }
    bench.deliver(bench.opened(), 0)


def test_one_sink_that_fails_keeps_its_error_and_is_named(bench: Bench) -> None:
    coordinator = bench.opened()
    error = ContentConflict("Other rows.", remedy="Look.")
    bench.steps.failing["transact table"] = [error]
    with pytest.raises(ContentConflict) as raised:
        bench.deliver(coordinator, 0)
    assert raised.value is error
    assert raised.value.by_sink == {"table": error.as_fields()}


ORDER = [
    Fenced("A newer run.", remedy="Let it."),
    Refused("Another one's.", remedy="Correct it."),
    Usage("A setting.", remedy="Correct it."),
    StagedDataLost("Gone.", remedy="Restore it."),
    PublishFailed("No right.", remedy="Give it."),
    NotPublishedYet("Sink 'a' did not answer.", remedy="Start it."),
    OutcomeUnknown("No answer.", remedy="Look."),
    Overtaken("Later.", remedy="Wait."),
]


@pytest.mark.parametrize("at", range(len(ORDER) - 1))
def test_the_class_is_that_of_the_error_to_act_on_first(bench: Bench, at: int) -> None:
    less, more = ORDER[at + 1], ORDER[at]
    assert urgency(more) < urgency(less)
    with pytest.raises(type(more)) as raised:
        all_published(BatchId(1), bench.sinks(), [less, more])
    assert raised.value.exit_code == more.exit_code
    shown = "".join(traceback.format_exception(raised.value))
    assert more.message in shown
    cause = raised.value.__cause__
    assert cause is not None
    if sys.version_info >= (3, 11):
        assert getattr(cause, "exceptions") == (more, less)  # noqa: B009 - types are checked as of an older Python
    else:
        assert cause is more


def test_an_error_of_a_modules_own_becomes_the_one_that_is_documented() -> None:
    error = merge([Overtaken("One.", remedy="Wait."), Overtaken("Two.", remedy="Wait.")])
    assert (type(error), error.message, error.remedy) == (Retryable, "One. Two.", "Wait.")


def test_accounts_and_lanes_of_one_sink_tell_all_their_errors() -> None:
    errors = {
        "a": Retryable("Account a is away.", remedy="Wait."),
        "b": StagedDataLost("Account b lost it.", remedy="Restore it."),
    }

    def fail(account: str) -> None:
        if account in errors:
            raise errors[account]

    with pytest.raises(StagedDataLost, match=r"Account b lost it\. Account a is away.") as raised:
        map_concurrently(fail, ["a", "fine", "b"])
    assert raised.value.remedy == "Restore it. Wait."


def test_the_same_error_of_a_hundred_files_is_told_once_and_a_hundred_errors_are_not_all_told() -> None:
    assert merge([Retryable("The store is away.", remedy="Wait.") for _ in range(100)]).message == "The store is away."
    message = merge([Retryable(f"File {number} is away.", remedy="Wait.") for number in range(100)]).message
    assert message.endswith("File 4 is away. 95 more errors like these.")


def test_an_exception_of_another_kind_comes_through_side_by_side_as_it_is() -> None:
    def fail(kind: type[Exception]) -> None:
        raise kind("Away.") if kind is KeyError else Retryable("Away.", remedy="Wait.")

    with pytest.raises(KeyError):
        map_concurrently(fail, [KeyError, ValueError])


def test_json_holds_the_error_of_each_sink(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StagedDataLost) as raised:
        all_published(BatchId(1), bench.sinks(), [ORDER[6], ORDER[3]])
    show_error(raised.value, as_json=True)
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert (told["kind"], told["exit_code"]) == ("StagedDataLost", 1)
    assert told["sinks"] == {"table": ORDER[3].as_fields(), "files": ORDER[6].as_fields()}
    assert "Sink 'files': OutcomeUnknown: No answer." in err


@pytest.fixture
def bench() -> Bench:
    return Bench()
