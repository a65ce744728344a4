"""What a client of Spark Connect leaves to the process at the server that delivers the batches; without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Nonce
from penstock.errors import Fenced, LedgerMismatch, Retryable
from penstock.run.delivery import Delivery
from penstock.run.failure import error_from_query


def delivery_in(home: Path) -> Delivery:
    return Delivery("flights", home=home, sinks={"out": penstock.Console()}, guarantee="at_least_once")


def left_by_a_client(home: Path) -> Nonce:
    client = delivery_in(home)
    left = client.open(schema=None).newest_entry()
    client.release()
    assert left is not None
    return left


def at_server(home: Path, left: Nonce) -> Delivery:
    return Delivery.of_plan(replace(delivery_in(home).plan, left=left))


def test_the_server_goes_on_with_what_the_client_left(tmp_path: Path) -> None:
    opened = at_server(tmp_path, left_by_a_client(tmp_path)).open(schema=None)
    assert opened.coordinator.generation == 2
    opened.release()


@pytest.mark.parametrize("has_own", [False, True], ids=["empty", "one that runs"])
def test_a_server_that_sees_another_ledger_is_refused(tmp_path: Path, has_own: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    left = left_by_a_client(tmp_path / "here")
    if has_own:
        left_by_a_client(tmp_path / "there")
    with pytest.raises(LedgerMismatch, match=r"sees another ledger at .*there"):
        at_server(tmp_path / "there", left).open(schema=None)


def test_a_newer_run_that_opened_meanwhile_is_left_alone(tmp_path: Path) -> None:
    left = left_by_a_client(tmp_path)
    left_by_a_client(tmp_path)
    with pytest.raises(Fenced, match="A newer run opened the pipeline"):
        at_server(tmp_path, left).open(schema=None)


def test_a_python_process_that_came_too_late_is_worth_another_start(tmp_path: Path) -> None:
    said = "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back"
    told = error_from_query(said, checkpoint=SparkCheckpoint(tmp_path), doing="start")
    assert isinstance(told, Retryable)
    assert told.message.startswith("Spark could not start the query: a Python worker")
