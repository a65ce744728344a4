"""`penstock doctor` on real ledgers and accounts: what waits, what is dead, which account lacks the newest decision."""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.console import Done, Shown, shown_in
from tests.crash.commandline import penstock
from tests.unit.parquet_target import SCHEMA, attempt, rows, stage

from penstock.cli.app import main
from penstock.commit.outcome import StagedBatch
from penstock.core.faults import arm
from penstock.core.model import NEWEST_ROW_DIGEST, Batch, BatchId, OffsetRange, QueryId, SinkReport, SourceName, Staged
from penstock.core.row_hash import row_hashes
from penstock.errors import CheckpointDamaged, Failed, PenstockError, PublishFailed
from penstock.observe.last_error import noting_error
from penstock.protocols import SCHEMA_KEY
from penstock.run.assembly import assemble
from penstock.run.pipeline import Pipeline
from penstock.run.runtime import coordinator_of, opened_by_this_process
from penstock.sink.parquet import ParquetSink
from penstock.sink.sqlite import SqliteSink

FILE = """\
pipeline: flights
home: ./state
sources: {events: {format: rate}}
sinks:
  lake: {type: parquet, accounts: {only: ./lake}}
"""
WAREHOUSE = "  warehouse: {type: sqlite, url: 'sqlite:///warehouse.db', table: flights}\n"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "trouble.md"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.run.doctor._sleep", lambda _: None)
    Path("flights.yaml").write_text(FILE)
    yield
    arm("")


def batch(number: int) -> Batch:
    offsets = OffsetRange(source=SourceName("events"), start=f"{number}", end=f"{number + 1}")
    return Batch(query_id=QueryId("query"), batch_id=BatchId(number), offsets=(offsets,))


def run(*, last_fails: bool, leaves: int = 0, batches: int = 2) -> None:
    """A generation that delivers batch 0, then decides batch 1, of whose attempts it `leaves` some; batch 2 is in the making."""
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (sink,) = runtime.sinks
        assert isinstance(sink, ParquetSink)
        coordinator = coordinator_of(runtime)
        sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        told: list[tuple[Staged, ...]] = []
        for number in range(batches):
            told += [stage(sink, rows(number), batch_id=number) for _ in range(1 + leaves * number)]
            arm("rename.move=error" if last_fails and number else "")
            try:
                coordinator.deliver(
                    batch(number), lambda _, pieces=told[-1]: StagedBatch(pieces=pieces, rows_in=1, schema=SCHEMA)
                )
            except PublishFailed:
                assert last_fails
        stage(sink, rows(3), batch_id=2)
    spark_planned(1)


def spark_planned(batch_id: int) -> None:
    """Write what Spark's checkpoint has then, as far as `doctor` reads it."""
    for folder in ("offsets", "commits"):
        Path("state/checkpoint", folder).mkdir(parents=True, exist_ok=True)
        for number in range(batch_id + 1):
            Path("state/checkpoint", folder, str(number)).write_text("v1\n{}\n-")
    Path("state/checkpoint/metadata").write_text(json.dumps({"id": "query"}))


def doctor(capsys: pytest.CaptureFixture[str], *, code: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(capsys, "--json", code=code).splitlines()[-1])
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "flights.yaml", *words])
    out = capsys.readouterr().out
    assert ended.value.code == code, out
    return out


def heaps(account: dict[str, Any]) -> list[tuple[int, int | None]]:
    return [(account[kind]["pieces"], account[kind]["oldest_batch"]) for kind in ("decided", "running", "dead")]


def test_nothing_is_pending_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nothing was delivered yet." in said(capsys, code=0)
    assert doctor(capsys, code=0)["accounts"][0]["state"] == "empty"
    assert not Path("lake").exists(), "it only looks"


def test_a_table_that_was_made_and_got_nothing_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE + WAREHOUSE)
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (_, warehouse) = runtime.sinks
        warehouse.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator_of(runtime).open(opened_by_this_process(runtime))
    assert {account["state"] for account in doctor(capsys, code=0)["accounts"]} == {"empty"}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_sink_that_cannot_be_read_does_not_keep_verify_from_the_others(
    capsys: pytest.CaptureFixture[str], *, is_lost: bool
) -> None:
    run(last_fails=False)
    Path("flights.yaml").write_text(FILE + WAREHOUSE)
    Path("warehouse.db").write_text("This is no database. " * 100)
    if is_lost:
        next(Path("lake").glob("*.parquet")).unlink()
    with pytest.raises(SystemExit) as ended:
        main(["verify", "flights.yaml"])
    out = capsys.readouterr().out
    assert ended.value.code == (5 if is_lost else 1), out
    assert ("DIFFERENT" if is_lost else "ok") in out
    assert re.search(r"warehouse: not compared. .*warehouse.db cannot be used as a database: file is not", out), out
    with pytest.raises(SystemExit):
        main(["verify", "flights.yaml", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], list(found["sinks"]), found["errors"]["warehouse"]["exit_code"]) == (False, ["lake"], 1)
    with pytest.raises(SystemExit) as ended:
        main(["verify", "flights.yaml", "--sink", "warehouse"])
    assert ended.value.code == 1
    assert "error: " in capsys.readouterr().err


def test_nothing_is_accepted_as_removed_while_a_sink_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    run(last_fails=False)
    Path("flights.yaml").write_text(FILE + WAREHOUSE)

    def fails(*_: object) -> SinkReport:
        raise Failed("It cannot be read.", remedy="Mend it.")

    monkeypatch.setattr(SqliteSink, "verify", fails)
    with pytest.raises(Failed, match=r"It cannot be read\."):
        Pipeline.from_file("flights.yaml").accept_removed()


def test_a_log_of_a_source_that_is_torn_is_told_before_spark_is(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    log = Path("state/checkpoint/sources/0")
    log.mkdir(parents=True)
    (log / "0").touch()
    assert "sources/0/0 is empty. Restore the checkpoint from a copy. Without a copy," in doctor(capsys, code=1)["refused"]
    assert Pipeline.from_file("flights.yaml").status().health == "conflict"
    with pytest.raises(CheckpointDamaged, match="sources/0/0 is empty"):
        Pipeline.from_file("flights.yaml").require_startable()


def test_a_sink_without_a_marker_is_empty_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.partition("  lake")[0] + "  shown: {type: memory}\n")
    assert doctor(capsys, code=0)["accounts"][0]["state"] == "empty"


def test_an_account_that_cannot_be_written_is_told_and_the_other_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.replace("{only: ./lake}", "{only: ./lake, other: ./file}, route: {hash: [id]}"))
    Path("file").touch()
    only, other = doctor(capsys, code=1)["accounts"]
    assert (only["state"], other["state"]) == ("empty", "unwritable")
    text = " ".join(said(capsys, code=1).split())
    assert "lake other cannot be written" in text
    assert f"lake other: {other['trouble']}" in text
    assert "expected a directory" in other["trouble"]


def test_a_decision_that_waits_for_a_place_that_cannot_be_written_is_told_as_both(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=True)
    shutil.rmtree("lake")
    Path("lake").touch()
    (account,) = doctor(capsys, code=1)["accounts"]
    assert account["state"] == "outstanding"
    assert "expected a directory" in account["trouble"]


def test_a_published_batch_and_one_in_the_making(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    found = doctor(capsys, code=0)
    (account,) = found["accounts"]
    assert (account["state"], account["mark"], account["batch_id"]) == ("published", 3, 1)
    assert heaps(account) == [(0, None), (1, 2), (0, None)]
    assert account["running"]["size_bytes"] == sum(path.stat().st_size for path in Path().rglob("*.staged"))
    assert "Nothing is pending" not in said(capsys, code=0)


def test_an_outstanding_decision_wants_a_hand(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=True, leaves=2)
    staged = sorted(Path().rglob("*.staged"))
    found = doctor(capsys, code=1)
    (account,) = found["accounts"]
    assert (found["entries"], found["generation"], found["position"], found["batch_id"]) == (3, 1, 3, 1)
    assert (account["state"], account["mark"], account["batch_id"]) == ("outstanding", 2, 0)
    assert heaps(account) == [(1, 1), (1, 2), (2, 1)]
    assert "`penstock recover flights.yaml` publishes it" in " ".join(said(capsys, code=1).split())
    assert sorted(Path().rglob("*.staged")) == staged
    assert len(Pipeline.from_file("flights.yaml").sweep(yes=False)) == account["dead"]["pieces"]
    Pipeline.from_file("flights.yaml").recover()
    (account,) = doctor(capsys, code=0)["accounts"]
    assert (account["state"], heaps(account)) == ("published", [(0, None)] * 3)
    assert "Nothing is pending." in said(capsys, code=0)


def test_what_a_running_driver_publishes_while_it_is_looked_at_wants_no_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(last_fails=True)
    monkeypatch.setattr("penstock.run.doctor._sleep", lambda _: Pipeline.from_file("flights.yaml").recover())
    (account,) = doctor(capsys, code=0)["accounts"]
    assert (account["state"], account["mark"]) == ("published", 3)


def test_an_account_that_another_ledger_filled_is_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    Path("flights.yaml").write_text(f"{FILE}ledger: ./another\n")
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        coordinator_of(runtime).open(opened_by_this_process(runtime))
    assert doctor(capsys, code=1)["accounts"][0]["state"] == "foreign"
    told = " ".join(said(capsys, code=1).split())
    assert "Another ledger of pipeline 'flights' filled lake only: put that ledger in the place of" in told


def test_an_account_that_is_not_mounted_any_more_is_no_published_one(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=True)
    Pipeline.from_file("flights.yaml").recover()
    Path("elsewhere").mkdir()
    for part in ("lake", ".penstock-staging"):
        Path(part).rename(Path("elsewhere") / part)
    assert doctor(capsys, code=1)["accounts"][0]["state"] == "lost"
    told = " ".join(said(capsys, code=1).split())
    assert "What was published in lake only is not there, or an older copy is: mount that place" in told


def test_a_directory_that_somebody_removed_is_lost_though_its_marker_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    Path("lake").rename("backup")
    (account,) = doctor(capsys, code=1)["accounts"]
    assert (account["state"], account["mark"]) == ("lost", 3)
    told = f"The directory {Path('lake').absolute()} of account 'only' of sink 'lake' is gone, and 2 rows with it that were"
    shown = " ".join(said(capsys, code=1).split())
    assert told in shown
    assert "`penstock verify flights.yaml --accept-removed`" in shown
    status = Pipeline.from_file("flights.yaml").status()
    assert (status.health, status.text) == ("conflict", f"{told} published. A start goes on without them.")
    assert [(place.state, place.mark) for place in status.places] == [("lost", 3)]
    Path("backup").rename("lake")
    assert doctor(capsys, code=0)["accounts"][0]["state"] == "published"


def test_a_directory_that_was_removed_on_purpose_is_not_missed(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    shutil.rmtree("lake")
    with pytest.raises(SystemExit) as ended:
        main(["verify", "flights.yaml", "--accept-removed", "--yes", "--reason", "old"])
    assert ended.value.code == 0
    capsys.readouterr()
    assert doctor(capsys, code=0)["accounts"][0]["state"] == "published"
    status = Pipeline.from_file("flights.yaml").status()
    assert (status.health, [place.state for place in status.places]) == ("ok", ["own"])


@pytest.mark.parametrize(("batches", "gone"), [(2, "2 rows with it that were"), (1, "1 row with it that was")])
def test_a_start_says_that_it_goes_on_without_a_directory(caplog: pytest.LogCaptureFixture, batches: int, gone: str) -> None:
    run(last_fails=False, batches=batches)
    shutil.rmtree("lake")
    with pytest.raises(SystemExit) as ended:
        main(["recover", "flights.yaml"])
    assert ended.value.code == 0
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"of sink 'lake' is gone, and {gone} published. A start goes on without them." in told


def test_of_a_directory_that_was_removed_only_what_was_published_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=True)
    shutil.rmtree("lake")
    assert "is gone, and 1 row with it" in doctor(capsys, code=1)["accounts"][0]["trouble"]


def test_a_refused_start_is_told_before_a_directory_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    shutil.rmtree("lake")
    shutil.rmtree("state/checkpoint")
    status = Pipeline.from_file("flights.yaml").status()
    assert (status.health, "A start would be refused" in status.text) == ("conflict", True)
    assert [place.state for place in status.places] == ["lost"]


def test_a_checkpoint_that_a_start_would_refuse_wants_a_hand(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    assert doctor(capsys, code=0)["refused"] is None
    Path("state/checkpoint/offsets/1").write_text("v1\n{")
    told = " ".join(said(capsys, code=1).split())
    assert "A start would be refused: In the checkpoint" in told
    assert "offsets/1 line 2 is not JSON (cut off?)." in told
    assert "Nothing is pending" not in told
    shutil.rmtree("state/checkpoint")
    told = " ".join(said(capsys, code=1).split())
    assert "A start would be refused: The ledger continues query query with batch 2, but the checkpoint" in told
    assert "read what `penstock adopt flights.yaml` says" in told


@pytest.fixture
def driver_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.observe.driver._runs", lambda *_, **__: False)


@pytest.mark.usefixtures("driver_has_ended")
def test_the_error_that_ended_the_newest_run_is_told_until_the_ledger_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    Pipeline.from_file("flights.yaml").recover()
    with pytest.raises(Failed), noting_error(str(Path("state").absolute())):
        raise Failed("The disk is full.", remedy="Make room, then run `penstock recover`.")
    shown = " ".join(said(capsys, code=0).split())
    assert "Nothing is pending, but the newest run ended with an error 0 seconds ago: The disk is full. Make room" in shown
    assert "then run `penstock recover flights.yaml`." in shown
    assert doctor(capsys, code=0)["failure"]["exit_code"] == 1
    Pipeline.from_file("flights.yaml").recover()
    assert doctor(capsys, code=0)["failure"] is None
    assert "Nothing is pending." in said(capsys, code=0)


@pytest.mark.usefixtures("driver_has_ended")
def test_an_error_that_ended_a_run_and_would_end_the_next_one_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    shutil.rmtree("state/checkpoint")
    refused = doctor(capsys, code=1)["refused"]
    with pytest.raises(Failed), noting_error(str(Path("state").absolute())):
        raise Failed(refused.partition(". ")[0], remedy="-")
    told = said(capsys, code=1)
    assert ("A start would be refused" in told, "the newest run" in told.lower()) == (True, False)


def test_spool_files_of_a_database_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.partition("  lake")[0] + WAREHOUSE)
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (sink,) = runtime.sinks
        assert isinstance(sink, SqliteSink)
        sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator_of(runtime).open(opened_by_this_process(runtime))
        many = rows(*range(100_000))
        schema = many.schema.with_metadata({SCHEMA_KEY: SCHEMA.encode()})
        for generation in (0, 1):
            writer = sink.stager().open(attempt(generation=generation), schema)
            writer.write(many.cast(schema), hashes=row_hashes(many, NEWEST_ROW_DIGEST), accounts=None)
            writer.finish()
    (account,) = doctor(capsys, code=0)["accounts"]
    assert heaps(account) == [(0, None), (1, 0), (1, 0)]
    files = {path.stat().st_size for path in Path("state/spool").rglob("*.arrow")}
    assert {account["running"]["size_bytes"], account["dead"]["size_bytes"]} == files


def test_a_table_that_was_dropped_is_lost_though_its_marker_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE.partition("  lake")[0] + WAREHOUSE)
    with closing(assemble(Pipeline.from_file("flights.yaml").plan)) as runtime:
        (sink,) = runtime.sinks
        coordinator = coordinator_of(runtime)
        sink.prepare(pipeline=runtime.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        three = rows(1, 2, 3)
        schema = three.schema.with_metadata({SCHEMA_KEY: SCHEMA.encode()})
        writer = sink.stager().open(attempt(generation=1), schema)
        writer.write(three.cast(schema), hashes=row_hashes(three, NEWEST_ROW_DIGEST), accounts=None)
        pieces = tuple(writer.finish())
        coordinator.deliver(batch(0), lambda _: StagedBatch(pieces=pieces, rows_in=3, schema=SCHEMA))
    spark_planned(0)
    assert doctor(capsys, code=0)["accounts"][0]["state"] == "published"
    with closing(sqlite3.connect("warehouse.db")) as connection, connection:
        connection.execute("DROP TABLE flights")
    told = "Table 'flights' is gone, and 3 rows with it that were published."
    (account,) = doctor(capsys, code=1)["accounts"]
    assert (account["state"], told in account["trouble"]) == ("lost", True)
    status = Pipeline.from_file("flights.yaml").status()
    assert (status.health, [(place.state, place.trouble) for place in status.places]) == ("conflict", [("lost", told)])


def test_an_account_that_cannot_be_looked_at_keeps_no_other_from_being_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE + WAREHOUSE)
    Path("warehouse.db").write_bytes(b"no database at all" * 100)
    lake, warehouse = doctor(capsys, code=1)["accounts"]
    assert (lake["state"], warehouse["state"]) == ("empty", "unreachable")
    assert warehouse["trouble"] in said(capsys, code=1).replace("\n", " ")


def test_a_ledger_without_its_newest_decision_is_told_as_an_error() -> None:
    run(last_fails=True)
    with closing(sqlite3.connect("state/ledger.db")) as connection, connection:
        connection.execute("UPDATE penstock_ledger SET entry = replace(entry, '\"decided_at\":3', '\"decided_at\":1')")
    with pytest.raises(PenstockError, match="newest decision"):
        Pipeline.from_file("flights.yaml").doctor()


def test_the_page_for_the_night_shows_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=True, leaves=2)
    (shown,) = re.findall(r"^\$ penstock doctor flights.yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shape(shown) == shape(said(capsys, code=1))


def test_the_commands_of_the_page_for_the_night_print_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, after a driver was killed between decision and publication."""
    run(last_fails=True, leaves=1)
    monkeypatch.setattr("penstock.observe.driver._runs", lambda *_, **__: False)

    def ran(shown: Shown) -> Done:
        ended = penstock(*shown.words[1:])
        return Done(shown.words, ended.code, ended.out, ended.err)

    commands = list(shown_in(PAGE.read_text()))
    assert [shown.words[1] for shown in commands] == ["status", "recover", "verify"]
    for shown in commands:
        shown.assert_printed_by(ran)


def shape(text: str) -> list[str]:
    """Word for word: numbers, sizes, places and processes differ from one machine to another, and with them where a line ends."""
    plain = re.sub(r"/[^,]+?ledger\.db", "ledger.db", text, count=1)
    plain = re.sub(r"opened\s+by\s+.*?(?=─|\n\s*\n)", "opened by … ", plain, flags=re.DOTALL)
    plain = re.sub(r"[\d,.]+ (k?B)\b|\d+", "#", plain)
    return re.sub("─+", "─", plain).split()
