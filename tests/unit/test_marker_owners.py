"""`status`, `doctor` and `recover` of a home that is not the one which filled the sinks: each of them says so."""

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.table_target import spark_schema

import penstock
from penstock.cli.app import main
from penstock.commit.outcome import StagedBatch
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    Attempt,
    Batch,
    BatchId,
    Generation,
    OffsetRange,
    QueryId,
    SinkName,
    SourceName,
    new_nonce,
)
from penstock.core.row_hash import row_hashes
from penstock.errors import LedgerMismatch, Refused, Retryable, Usage
from penstock.protocols import Sink
from penstock.run import status
from penstock.run.assembly import DeliveryPlan, assemble, sink_of
from penstock.run.operations import recover
from penstock.run.runtime import coordinator_of, opened_by_this_process, prepare
from penstock.run.status import status_of
from penstock.sink.parquet import ParquetSink
from penstock.sink.sqlite import SqliteSink

SCHEMA = spark_schema(id="long")
FILE = """\
pipeline: flights
home: ./{home}
spool: ./spool-{home}
sources: {{events: {{format: rate}}}}
sinks:
  db: {{type: sqlite, url: 'sqlite:///data.db', table: t}}
  lake: {{type: parquet, accounts: {{only: ./lake}}}}
"""


@pytest.fixture
def plan_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], DeliveryPlan]:
    """A pipeline with the home of that name, on the same table and account."""
    monkeypatch.chdir(tmp_path)

    def made(home: str) -> DeliveryPlan:
        Path(f"{home}.yaml").write_text(FILE.format(home=home))
        return penstock.Pipeline.from_file(f"{home}.yaml").plan

    return made


def deliver(plan: DeliveryPlan, *, batches: int) -> None:
    """A generation that delivers so many batches of a row."""
    rows = pa.record_batch({"id": pa.array([1], pa.int64())})
    with closing(assemble(plan)) as runtime:
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        for number in range(batches):

            def stage(generation: Generation, number: int = number) -> StagedBatch:
                pieces = []
                for sink in runtime.sinks:
                    attempt = Attempt(
                        generation=generation, batch_id=BatchId(number), partition=0, task_attempt=0, nonce=new_nonce()
                    )
                    writer = sink.stager().open(attempt, rows.schema)
                    writer.write(rows, hashes=row_hashes(rows, NEWEST_ROW_DIGEST), accounts=None)
                    pieces += writer.finish()
                return StagedBatch(pieces=tuple(pieces), rows_in=1, schema=SCHEMA)

            offsets = OffsetRange(source=SourceName("events"), start=f"{number}", end=f"{number + 1}")
            coordinator.deliver(Batch(query_id=QueryId("query"), batch_id=BatchId(number), offsets=(offsets,)), stage)


def states(plan: DeliveryPlan) -> list[tuple[str, str | None, str, int | None]]:
    return [(one.sink, one.account, one.state, one.mark) for one in status_of(plan).places]


def of_another(plan_at: Callable[[str], DeliveryPlan]) -> DeliveryPlan:
    """It was opened before the other one delivered, so that its end is beyond the markers."""
    other = plan_at("other")
    for _ in range(4):
        recover(other)
    deliver(plan_at("own"), batches=2)
    return other


def of_an_older_copy(plan_at: Callable[[str], DeliveryPlan]) -> DeliveryPlan:
    deliver(plan_at("own"), batches=0)
    for place in ("own", "spool-own"):
        shutil.copytree(place, place.replace("own", "copy"))
    deliver(plan_at("own"), batches=2)
    return plan_at("copy")


@pytest.mark.parametrize(("home", "state"), [(of_another, "foreign"), (of_an_older_copy, "ahead")])
def test_a_home_that_did_not_fill_the_sinks_says_so(
    plan_at: Callable[[str], DeliveryPlan], home: Callable[..., DeliveryPlan], state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = home(plan_at)
    expected = [("db", "", state), ("lake", "only", state)]
    assert [one[:3] for one in states(plan)] == expected
    found = status_of(plan)
    assert found.health == "conflict"
    assert found.text.startswith("Sink 'db' shows ")
    assert found.text.endswith(
        "another ledger, or an older copy, is in its place. A start would be refused: `penstock doctor FILE` says what to do."
    )
    with pytest.raises(LedgerMismatch):
        recover(plan)
    name = Path(plan.settings.home or "").name
    diagnosis = said("doctor", f"{name}.yaml", code=1, capsys=capsys)
    assert [(one["sink"], one["account"], one["state"]) for one in diagnosis["accounts"]] == expected
    with pytest.raises(SystemExit):
        main(["status", f"{name}.yaml"])
    assert capsys.readouterr().out.count(state) == 2
    own = plan_at("own")
    assert [one[2] for one in states(own)] == ["own", "own"]
    assert not recover(own).rolled_forward


def said(verb: str, file: str, *, code: int, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([verb, file, "--json"])
    assert ended.value.code == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_what_was_delivered_shows_its_position(plan_at: Callable[[str], DeliveryPlan]) -> None:
    plan = plan_at("own")
    assert states(plan) == [("db", "", "empty", None), ("lake", "only", "empty", None)]
    assert status_of(plan).health == "new"
    deliver(plan, batches=2)
    assert states(plan) == [("db", "", "own", 3), ("lake", "only", "own", 3)]
    before = replace(status_of(plan), places=())
    assert status_of(plan, known=before).places == ()


def test_an_emptied_database_and_a_place_that_is_not_mounted_are_lost(plan_at: Callable[[str], DeliveryPlan]) -> None:
    """A database file of 0 bytes is a valid one, without tables. Of the newest batch nobody noted yet that it is there."""
    plan = plan_at("own")
    deliver(plan, batches=3)
    Path("data.db").write_bytes(b"")
    for left in Path().glob("data.db-*"):
        left.unlink()
    found = status_of(plan)
    assert [(one.sink, one.state) for one in found.places] == [("db", "lost"), ("lake", "own")]
    assert found.health == "conflict"
    said = "Sink 'db' shows no trace of the 2 rows that were published there: it was removed, or something else"
    assert found.text.startswith(said)
    for act in (recover, lambda plan: deliver(plan, batches=4)):
        with pytest.raises(Refused, match="shows no trace of the 2 rows") as told:
            act(plan)
        assert "give the sink another name and an empty place" in told.value.remedy
    assert Path("data.db").read_bytes() == b""


def test_a_store_that_fails_or_hangs_holds_nothing_up(
    plan_at: Callable[[str], DeliveryPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, until = plan_at("own"), threading.Event()
    deliver(plan, batches=1)
    before = status_of(plan)

    def fails(*_: object, **__: object) -> None:
        raise Retryable("The store is silent.", remedy="Wait.")

    monkeypatch.setattr(SqliteSink, "high_water_mark", fails)
    monkeypatch.setattr(ParquetSink, "high_water_mark", lambda *_, **__: until.wait())
    with closing(assemble(plan)) as runtime:
        found = status.places_of(plan, runtime.ledger, within_s=0.05)
    until.set()
    assert [(one.sink, one.state) for one in found] == [("db", "unreachable"), ("lake", "unreachable")]
    assert [one.trouble for one in found] == ["The store is silent. Wait.", "No answer within 0.05 seconds."]
    assert status_of(plan, known=replace(before, places=found)).health == before.health


def test_a_client_that_is_not_installed_where_somebody_looks_is_told(
    plan_at: Callable[[str], DeliveryPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_at("own")

    def lacks(name: SinkName, plan: DeliveryPlan) -> Sink:
        if name == "db":
            raise Usage("Its client is missing.", remedy="Install it.")
        return sink_of(name, plan)

    monkeypatch.setattr(status, "sink_of", lacks)
    found = status_of(plan).places
    assert {(one.sink, one.state, one.trouble) for one in found} == {
        ("lake", "empty", None),
        ("db", "unreachable", "Its client is missing. Install it."),
    }
