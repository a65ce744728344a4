"""What happens when a batch fails, is stopped, or meets a newer driver."""

import pickle
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import penstock
from penstock.core.model import Publication
from penstock.errors import (
    BatchFailed,
    CheckpointDamaged,
    CheckpointMissing,
    Failed,
    Fenced,
    InputChanged,
    NotPublishedYet,
    PenstockError,
    PublishFailed,
    Retryable,
    StageFailed,
    Usage,
)
from tests.architecture.reading import ROOT
from tests.spark.streams import numbers, put, run
from tests.spark.target import THREE_FILES, Rows, Target, of_three_files

pytestmark = pytest.mark.spark


target = pytest.fixture(of_three_files)


EXPECTED = THREE_FILES


def test_system_exit_in_a_batch_fails_the_query_and_does_not_hang(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(7)

    monkeypatch.setattr("penstock.run.open_delivery.OpenDelivery.deliver", leave)
    with pytest.raises(BatchFailed, match="SystemExit"):
        target.deliver(numbers(spark, target.root))
    monkeypatch.undo()
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == EXPECTED


def test_a_failed_publication_is_rolled_forward_by_the_next_start(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PublishFailed("The target is gone.", remedy="Bring it back.")

    monkeypatch.setattr("penstock.sink.sqlite.SqliteSink.publish", refuse)
    with pytest.raises(PublishFailed, match="gone"):
        target.deliver(numbers(spark, target.root))
    assert target.accounts().total() == 1, "the other sink shows the decided batch"
    monkeypatch.undo()
    query = target.deliver(numbers(spark, target.root))
    summary = query.summary()
    assert summary is not None
    assert summary.recovered
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("behind", [False, True])
def test_a_stop_does_not_wait_for_a_sink_that_does_not_answer(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch, *, behind: bool
) -> None:
    """It is told what waits, and the next start publishes it."""
    is_away = threading.Event()

    def away(*_: object) -> None:
        is_away.set()
        raise Retryable("The database does not answer.", remedy="Start it.")

    monkeypatch.setattr("penstock.sink.sqlite.SqliteSink.publish", away)
    query = target.delivery(retry_timeout="10m", publish_behind=behind).start(numbers(spark, target.root).writeStream)
    assert is_away.wait(60)
    with pytest.raises(NotPublishedYet, match=r"'table' could not publish batch 0: The database does not answer\..* is decided"):
        query.stop(grace=60)
    assert (target.accounts().total(), target.rows().total()) == (1, 0)
    monkeypatch.undo()
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == target.rows() == EXPECTED


def test_an_exception_of_a_library_during_recovery_is_told_with_its_cause(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a query catches PenstockError, and nothing else."""

    def break_down(*_: object) -> None:
        raise KeyError("endpoint")

    monkeypatch.setattr("penstock.sink.sqlite.SqliteSink.publish", break_down)
    with pytest.raises(BatchFailed, match="The batch failed with KeyError: 'endpoint'"):
        target.deliver(numbers(spark, target.root))
    with pytest.raises(Failed, match=r"The start failed with KeyError: 'endpoint'.* Mend the cause and start again") as told:
        target.deliver(numbers(spark, target.root))
    assert isinstance(told.value.__cause__, KeyError)
    monkeypatch.undo()
    target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_a_newer_driver_fences_the_older_one(spark: SparkSession, target: Target) -> None:
    older = target.delivery()
    opened = older.open(schema=numbers(spark, target.root).schema.json())
    target.deliver(numbers(spark, target.root))
    put(target.root / "in", "3.csv", 3)
    writer = numbers(spark, target.root).writeStream.foreachBatch(older).option("checkpointLocation", older.checkpoint)
    query = penstock.Query(writer.trigger(availableNow=True).start(), older)
    with pytest.raises(Fenced, match="generation 2"):
        query.awaitTermination()
    assert older.opened is None
    assert opened.coordinator.generation == 1
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == target.rows() == EXPECTED + Counter([(3,)])


def test_a_delivery_is_picklable_configuration(target: Target) -> None:
    copy = pickle.loads(pickle.dumps(target.delivery()))
    assert copy.checkpoint == str(target.checkpoint)
    assert copy.opened is None


def test_unrouted_rows_fail_with_one_sentence_and_nothing_is_decided(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "0.csv", 1)
    lake = penstock.Parquet(accounts={"even": tmp_path / "lake/even", "odd": tmp_path / "lake/odd"}, route={"sql": "'mars'"})
    target = Target(tmp_path, lake=lake)
    with pytest.raises(StageFailed, match="mars"):
        target.deliver(numbers(spark, tmp_path))
    assert target.files() == []


def test_a_delivery_that_failed_refuses_every_further_batch(spark: SparkSession, target: Target) -> None:
    delivery = target.delivery()
    delivery.failure = PenstockError("It broke.", remedy="Mend it.")
    writer = numbers(spark, target.root).writeStream.foreachBatch(delivery).option("checkpointLocation", delivery.checkpoint)
    query = penstock.Query(writer.trigger(availableNow=True).start(), delivery)
    with pytest.raises(PenstockError, match="broke"):
        query.awaitTermination()
    assert target.files() == []


FOUR_FILES = EXPECTED + Counter([(3,)])


def lake_of(root: Path, *names: str, sql: str = "concat('n', n)", unrouted: str = "fail") -> penstock.Parquet:
    return penstock.Parquet(accounts={name: root / "lake" / name for name in names}, route={"sql": sql}, unrouted=unrouted)


@pytest.mark.parametrize(
    ("names", "changed"),
    [((), {"sql": "concat('n', n % 3)"}), (("n3",), {}), ((), {"unrouted": "n0"})],
    ids=["correct the route", "add the account", "let `unrouted` name an account"],
)
def test_rows_without_an_account_are_delivered_once_the_remedy_is_carried_out(
    spark: SparkSession, target: Target, names: tuple[str, ...], changed: dict[str, str]
) -> None:
    first = ("n0", "n1", "n2")
    target.deliver(numbers(spark, target.root), sinks={"lake": lake_of(target.root, *first), "table": target.table})
    put(target.root / "in", "3.csv", 3)
    with pytest.raises(StageFailed, match="routes to the account 'n3'") as told:
        target.deliver(numbers(spark, target.root), sinks={"lake": lake_of(target.root, *first), "table": target.table})
    assert told.value.remedy.startswith("Correct the route, add the account, or let `unrouted` name an account")
    assert target.rows() == EXPECTED
    lake = lake_of(target.root, *first, *names, **changed)
    target.deliver(numbers(spark, target.root), sinks={"lake": lake, "table": target.table})
    assert sum((target.account(name) for name in (*first, *names)), Counter()) == target.rows() == FOUR_FILES


def _broken_at_the_new_batch(step: str) -> Callable[..., object]:
    """A start publishes the last decision again, which is to succeed."""
    works = resolve_name(step)

    def fail(*given: Any, **named: Any) -> object:
        publication = given[1] if len(given) > 1 else None
        if isinstance(publication, Publication) and publication.batch.batch_id < 3:
            return works(*given, **named)
        raise KeyError("a broken library")

    return fail


@pytest.mark.parametrize(
    ("step", "shown"),
    [("penstock.run.batch_stager.stage_batch", EXPECTED), ("penstock.sink.sqlite.SqliteSink.publish", FOUR_FILES)],
    ids=["before the decision", "after it"],
)
def test_what_failed_is_delivered_by_the_next_start_once_its_cause_is_mended(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch, step: str, shown: Rows
) -> None:
    target.deliver(numbers(spark, target.root))
    put(target.root / "in", "3.csv", 3)
    with monkeypatch.context() as broken:
        broken.setattr(step, _broken_at_the_new_batch(step))
        with pytest.raises(BatchFailed, match="KeyError: 'a broken library'") as told:
            target.deliver(numbers(spark, target.root))
    assert told.value.remedy.startswith("Mend the cause and start again: what was decided is published")
    assert (target.accounts(), target.rows()) == (shown, EXPECTED)
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == target.rows() == FOUR_FILES


@pytest.mark.parametrize(
    ("rest", "says"), [(None, r"3\.csv is gone"), ("3\n", r"3\.csv was modified at")], ids=["gone", "cut short"]
)
def test_a_planned_file_that_changes_before_its_replay_stops_before_anything_is_staged(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch, rest: str | None, says: str
) -> None:
    """Spark passes over a file that is gone, and reads another as it is now: rows would be lost unseen."""

    def die(*_: object, **__: object) -> None:
        raise SystemExit(1)

    target.deliver(numbers(spark, target.root))
    file = put(target.root / "in", "3.csv", 3, 4)
    monkeypatch.setattr("penstock.run.batch_stager.stage_batch", die)
    with pytest.raises(BatchFailed):
        target.deliver(numbers(spark, target.root))
    kept = file.rename(target.root / "kept.csv")
    if rest is not None:
        file.write_text(rest)
    with pytest.raises(InputChanged, match=says):  # staging would raise another error
        target.deliver(numbers(spark, target.root))
    monkeypatch.undo()
    assert target.rows() == EXPECTED
    kept.rename(file)
    target.deliver(numbers(spark, target.root))
    assert target.rows() == target.accounts() == EXPECTED + Counter([(3,), (4,)])


def in_files(target: Target) -> Rows:
    """What the source holds."""
    return Counter((int(line),) for path in (target.root / "in").glob("*.csv") for line in path.read_text().splitlines())


def test_a_planned_file_whose_change_is_meant_is_delivered_once_the_remedy_is_carried_out(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error prints the command that says so: the file takes the time back with which Spark planned the batch."""

    def die(*_: object, **__: object) -> None:
        raise SystemExit(1)

    target.deliver(numbers(spark, target.root))
    file = put(target.root / "in", "mended file.csv", 3, 4)
    with monkeypatch.context() as dying:
        dying.setattr("penstock.run.batch_stager.stage_batch", die)
        with pytest.raises(BatchFailed):
            target.deliver(numbers(spark, target.root))
    file.write_text("5\n6\n7\n")
    with pytest.raises(InputChanged, match=r"mended file\.csv was modified at") as told:
        target.deliver(numbers(spark, target.root))
    assert target.rows() == target.accounts() == EXPECTED
    command = told.value.remedy.rpartition(": ")[2].removesuffix(".")
    assert command.startswith("touch -d @")
    subprocess.run(command, shell=True, check=True)  # as a person would
    target.deliver(numbers(spark, target.root))
    assert target.rows() == target.accounts() == in_files(target) == EXPECTED + Counter([(5,), (6,), (7,)])


NUMBERS = """\
pipeline: numbers
home: ./home
sources:
  s: {{format: csv, path: {root}/in, schema: n INT, options: {{maxFilesPerTrigger: 1}}}}
transform: {{sql: SELECT n FROM s}}
sinks:
  table: {{type: sqlite, url: "sqlite:///{root}/warehouse.db", table: numbers, write: append}}
trigger: {{available_now: true}}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("trigger", "triger"), ("available_now", "avaliable_now"), ("write", "wriet"), ("sqlite,", "sqlight,")],
)
def test_a_pipeline_file_that_is_wrong_delivers_once_it_is_corrected_as_told(
    spark: SparkSession, target: Target, right: str, wrong: str
) -> None:
    file = target.root / "numbers.yaml"
    file.write_text(NUMBERS.format(root=target.root).replace(right, wrong))
    with pytest.raises(Usage) as told:
        penstock.Pipeline.from_file(file)
    assert not (target.root / "home").exists()
    [(number, key, value)] = re.findall(
        r"numbers\.yaml:(\d+): [\w.]*?(?:(\w+) is not a known key|\w+ is no type of sink, found the text '(\w+)')\.",
        told.value.message,
    )
    [meant] = re.findall(r"^Did you mean (\w+)\?", told.value.remedy)
    lines = file.read_text().splitlines()
    lines[int(number) - 1] = lines[int(number) - 1].replace(key or value, meant)
    file.write_text("\n".join(lines))
    penstock.Pipeline.from_file(file).start(spark).awaitTermination()
    assert target.rows() == in_files(target) == EXPECTED


def test_a_kill_while_spark_writes_its_first_offsets_is_survived(spark: SparkSession, target: Target) -> None:
    """Spark 4.1 and newer refuse the temporary file that they left themselves."""
    leave_unwritten_start(target)
    target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_a_query_that_its_user_starts_after_such_a_kill_is_mended_as_the_page_says(spark: SparkSession, target: Target) -> None:
    [pattern] = re.findall(r"`rm state/flights/checkpoint/offsets/(\S+)`", (ROOT / "docs" / "howto" / "trouble.md").read_text())
    leave_unwritten_start(target)
    delivery = target.delivery()
    writer = numbers(spark, target.root).writeStream.foreachBatch(delivery).option("checkpointLocation", delivery.checkpoint)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        writer.trigger(availableNow=True).start().awaitTermination()
    for file in (target.checkpoint / "offsets").glob(pattern):
        file.unlink()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def emptied(path: Path) -> None:
    path.write_text("")


def connection_lost(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize(
    ("entry", "tear", "planned"),
    [
        ("metadata", emptied, False),
        ("metadata", connection_lost, True),
        ("metadata", Path.unlink, True),
        ("sources/0/0", emptied, False),
        ("sources/0/0", connection_lost, False),
        ("offsets/0", emptied, True),
        ("offsets/0", connection_lost, True),
    ],
)
def test_a_checkpoint_torn_before_its_first_batch_was_decided_is_removed_as_the_error_says(
    spark: SparkSession, target: Target, entry: str, tear: Callable[[Path], None], *, planned: bool
) -> None:
    """As a machine leaves it that goes down at the first start. Nobody has a copy yet, and that was all that was said."""
    with pytest.raises(StreamingQueryException):
        run(numbers(spark, target.root), target.checkpoint, unable)
    if not planned:
        shutil.rmtree(target.checkpoint / "offsets")
    tear(target.checkpoint / entry)
    (target.checkpoint / entry).with_name(f".{Path(entry).name}.crc").unlink()
    for _ in range(2):
        with pytest.raises((CheckpointDamaged, CheckpointMissing)) as told:
            target.deliver(numbers(spark, target.root))
    [directory] = re.findall(r"nothing was delivered yet, so remove the directory (\S+) and start again", told.value.remedy)
    shutil.rmtree(directory)
    target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


@pytest.mark.parametrize("tear", [emptied, connection_lost])
def test_what_was_torn_of_input_that_is_in_no_batch_is_removed_as_the_error_says(
    spark: SparkSession, target: Target, tear: Callable[[Path], None]
) -> None:
    target.deliver(numbers(spark, target.root))
    log = target.checkpoint / "sources/0"
    shutil.copy(log / "2", log / "3")
    tear(log / "3")
    put(target.root / "in", "3.csv", 3)
    for _ in range(2):
        with pytest.raises(CheckpointDamaged, match=r"sources/0/3 is (empty|cut off)") as told:
            target.deliver(numbers(spark, target.root))
    assert "No batch reads it yet: remove it and sources/0/.3.crc" in told.value.remedy
    (log / "3").unlink()
    target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED + Counter([(3,)]), EXPECTED + Counter([(3,)]))


@pytest.mark.parametrize("entry", ["offsets/3", "commits/2"])
@pytest.mark.parametrize("tear", [emptied, connection_lost])
def test_a_newest_entry_that_was_torn_is_removed_as_the_error_says(
    spark: SparkSession, target: Target, entry: str, tear: Callable[[Path], None]
) -> None:
    """Where its batch is not decided, or is recognised, Spark writes it anew: no copy is needed."""
    target.deliver(numbers(spark, target.root).dropDuplicates(["n"]))
    torn = target.checkpoint / entry
    if not torn.exists():
        shutil.copy(torn.with_name("2"), torn)
    tear(torn)
    torn.with_name(f".{torn.name}.crc").unlink(missing_ok=True)
    put(target.root / "in", "3.csv", 3)
    for _ in range(2):
        with pytest.raises(CheckpointDamaged, match=entry) as told:
            target.deliver(numbers(spark, target.root).dropDuplicates(["n"]))
    assert f"remove {entry} and " in told.value.remedy
    torn.unlink()
    target.deliver(numbers(spark, target.root).dropDuplicates(["n"]))
    assert (target.accounts(), target.rows()) == (EXPECTED + Counter([(3,)]), EXPECTED + Counter([(3,)]))


def unable(*_: object) -> None:
    raise ZeroDivisionError


def leave_unwritten_start(target: Target) -> None:
    offsets = target.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.67c1ac74-8d0e-4e2b-a87f-67091fa019b8.tmp").write_text("v1\n")
