"""What each change of a pipeline file means, over real checkpoints and the descriptions that runs leave."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.spark.streams import forget_commit
from tests.unit.parquet_target import SCHEMA
from tests.unit.preflight_world import World, said

from penstock import Pipeline
from penstock.core.model import LedgerId
from penstock.errors import PipelineChanged, SourcesChanged
from penstock.run.preflight.change import Preflight, Verdict
from penstock.run.preflight.description import LONGEST, recorded_run
from penstock.transform.state_held import StateHeld

SAFE, ACTION, BREAKS = Verdict.SAFE, Verdict.SAFE_WITH_ACTION, Verdict.BREAKS


@dataclass(frozen=True)
class Case:
    """A change of the file, the part that it is told for, and the verdict."""

    edits: tuple[tuple[str, str], ...]
    part: str
    verdict: Verdict
    of: str = "files"
    seen: dict[str, Any] = field(default_factory=dict)
    only: bool = True
    """Whether nothing else is told."""


def case(old: str, new: str, part: str, verdict: Verdict, of: str = "files", *, only: bool = True, **seen: Any) -> Case:
    return Case(((old, new),) if old else (), part, verdict, of, seen, only)


def held(kind: str, keys: str, holds: str = "") -> tuple[StateHeld, ...]:
    return (StateHeld(kind=kind, keys=keys, holds=holds),)


KAFKA = '{format: csv, path: ./in/a, schema: "n INT, at TIMESTAMP", options: {maxFilesPerTrigger: 1, header: true}'
UPDATE, COMPLETE = (("trigger: {", f"output_mode: {mode}\ntrigger: {{") for mode in ("update", "complete"))
UPSERTING = (
    ("  lake:\n    type: parquet\n    accounts: {north: ./north, south: ./south}\n    route: {column: place}\n", ""),
    ("flights}", "flights, write: upsert, key: [n]}"),
)
A = "sources.a."
DEDUPE, SUM = held("dedupe", "[n]"), held("stateStoreSave", "[window, n]", "count(1)")
SECOND = '  b: {format: csv, path: ./in/b, schema: "n INT"}\ntransform:'
OTHER_SQL = "SELECT n FROM a"
REPLACED = 'flights}\n  again: {type: sqlite, url: "sqlite:///again.db", table: flights}'

CASES: dict[str, Case] = {
    # sources: number, order, name
    "source added, read": case("transform:", SECOND, "sources.b", BREAKS, order=("a", "b")),
    "source added, not read": case("transform:", SECOND, "sources.b", SAFE),
    "source added, plan unknown": case("transform:", SECOND, "sources.b", ACTION, seen=False),
    "source renamed": case("  a: {", "  c: {", "sources.a", BREAKS, only=False, order=("c",)),
    "source renamed, plan unknown": case("  a: {", "  c: {", "sources.a", BREAKS, only=False, seen=False),
    "source removed": case("  b: {", "  c: {", "sources.b", BREAKS, "join", only=False, order=("a", "c")),
    "sources swapped in the plan": case("", "", "sources in their order", BREAKS, "join", order=("b", "a")),
    "sources swapped in the file": Case(
        (("  a: {", "  z: {"), ("  b: {", "  a: {"), ("  z: {", "  b: {")), A + "path", BREAKS, "join", only=False
    ),
    # format, path, columns
    "csv to json": Case((("format: csv", "format: json"), (", header: true", "")), A + "format", ACTION, only=False),
    "files to rate": case(KAFKA, "{format: rate", A + "format", BREAKS, only=False),
    "files to rate, plan unknown": case(KAFKA, "{format: rate", A + "format", BREAKS, only=False, seen=False),
    "files to kafka": case(
        KAFKA, '{format: kafka, options: {subscribe: t, kafka.bootstrap.servers: "b:9092"}', A + "format", BREAKS, only=False
    ),
    "a format that Penstock does not know": case("format: csv", "format: cvs", A + "format", ACTION),
    "path": case("./in/a", "./in/b", A + "path", BREAKS),
    "column added, no state": case("n INT,", "n INT, m INT,", A + "schema", SAFE),
    "column widened, no state": case("n INT,", "n BIGINT,", A + "schema", SAFE),
    "column widened, with state": case("n INT,", "n BIGINT,", A + "schema", ACTION, "aggregation"),
    "blanks in the schema": case('"n INT, at', '"n  INT,  at', "", SAFE),
    # options
    "files a batch": case("maxFilesPerTrigger: 1", "maxFilesPerTrigger: 9", A + "options.maxFilesPerTrigger", SAFE),
    "limit left out": case("maxFilesPerTrigger: 1, ", "", A + "options.maxFilesPerTrigger", SAFE),
    "header": case("header: true", "header: false", A + "options.header", SAFE),
    "separator": case("header: true", "header: true, sep: ;", A + "options.sep", SAFE),
    "glob": case("header: true", 'header: true, pathGlobFilter: "*.csv"', A + "options.pathGlobFilter", ACTION),
    "directories below": case(
        "header: true", "header: true, recursiveFileLookup: true", A + "options.recursiveFileLookup", ACTION
    ),
    "file names only": case("header: true", "header: true, fileNameOnly: true", A + "options.fileNameOnly", ACTION),
    "age of files": case("header: true", "header: true, maxFileAge: 1d", A + "options.maxFileAge", ACTION),
    "newest first": case("header: true", "header: true, latestFirst: true", A + "options.latestFirst", SAFE),
    "clean up": case("header: true", "header: true, cleanSource: delete", A + "options.cleanSource", SAFE),
    # watermark
    "delay, no state": case("delay: 30m", "delay: 1h", A + "watermark.delay", SAFE),
    "delay, with state": case("delay: 30m", "delay: 1h", A + "watermark.delay", SAFE, "aggregation"),
    "watermark removed, no state": case(", watermark: {column: at, delay: 30m}", "", A + "watermark.column", SAFE, only=False),
    "watermark removed, with state": case(
        ", watermark: {column: at, delay: 30m}", "", A + "watermark.column", ACTION, "aggregation", only=False
    ),
    # transform and state
    "sql, no state": case("SELECT * FROM a", OTHER_SQL, "transform.sql", SAFE),
    "sql, plan unknown, no state": case("SELECT * FROM a", OTHER_SQL, "transform.sql", SAFE, seen=False),
    "sql, plan unknown, with state": case("SELECT * FROM a", OTHER_SQL, "transform.sql", ACTION, "aggregation", seen=False),
    "sql, same state": case("SELECT * FROM a", OTHER_SQL, "transform.sql", SAFE, "aggregation"),
    "sql, same join": case("SELECT * FROM a", OTHER_SQL, "transform.sql", ACTION, "join"),
    "blanks and comments in sql": case("SELECT * FROM a", '"SELECT  * -- all\\n /* of */ FROM a;"', "", SAFE),
    "aggregation added": case("SELECT * FROM a", OTHER_SQL, "state", BREAKS, only=False, state=SUM),
    "aggregation removed": case("SELECT * FROM a", OTHER_SQL, "state", BREAKS, "aggregation", only=False, state=()),
    "deduplication becomes aggregation": case("SELECT * FROM a", OTHER_SQL, "state", BREAKS, "rocksdb", only=False, state=SUM),
    "deduplication added before": case(
        "SELECT * FROM a", OTHER_SQL, "state", BREAKS, "aggregation", only=False, state=(*SUM, *DEDUPE)
    ),
    "key of the deduplication": case(
        "SELECT * FROM a", OTHER_SQL, "state.0.keys", BREAKS, "rocksdb", only=False, state=held("dedupe", "[at]")
    ),
    "keys of the aggregation reordered": case(
        "SELECT * FROM a", OTHER_SQL, "state.0.keys", BREAKS, "aggregation", only=False,
        state=held("stateStoreSave", "[n, window]", "count(1)"),
    ),
    "another aggregate": case(
        "SELECT * FROM a", OTHER_SQL, "state.0.holds", BREAKS, "aggregation", only=False,
        state=held("stateStoreSave", "[window, n]", "sum(n)"),
    ),
    "join on another column": case(
        "SELECT * FROM a", OTHER_SQL, "state.0.keys", BREAKS, "join", only=False,
        state=held("symmetricHashJoin", "Inner, (at = at)"),
    ),
    "another key, and a column more": Case(
        (("n INT,", "n INT, m INT,"), ("SELECT * FROM a", OTHER_SQL)), "state.0.keys", BREAKS, "rocksdb",
        {"state": held("dedupe", "[m]")}, only=False,
    ),
    "append to update, rows sent once": Case((*UPSERTING, UPDATE), "output_mode", SAFE, "rocksdb", only=False),
    "append to update, plan unknown": Case(
        (*UPSERTING, UPDATE), "output_mode", ACTION, "aggregation", {"seen": False}, only=False
    ),
    "append to update, state of user code": Case(
        (*UPSERTING, UPDATE), "output_mode", ACTION, "aggregation", {"state": held("FlatMapGroupsWithState", "")}, only=False
    ),
    "key and column renamed": Case(
        (("n INT,", "m INT,"), ("SELECT * FROM a", "SELECT m FROM a")), "state.0.keys", ACTION, "rocksdb",
        {"state": held("dedupe", "[m]")}, only=False,
    ),
    # columns of the rows
    "column of the rows": case("", "", "columns", SAFE, schema=SCHEMA.replace('"place"', '"town"')),
    "type of the rows": case("", "", "columns", SAFE, schema=SCHEMA.replace('"long"', '"integer"')),
    # output mode, trigger, guarantee
    "append to update, no state": Case((*UPSERTING, UPDATE), "output_mode", SAFE, only=False),
    "append to update, with state": Case((*UPSERTING, UPDATE), "output_mode", BREAKS, "aggregation", only=False),
    "append to complete, with state": Case((*UPSERTING, COMPLETE), "output_mode", BREAKS, "aggregation", only=False),
    "interval": case("processing_time: 10s", "processing_time: 1m", "trigger", SAFE),
    "interval to available now": case("processing_time: 10s", "available_now: true", "trigger", SAFE),
    "once": case("processing_time: 10s", "once: true", "trigger", SAFE),
    "at least once": case("home: ./state", "home: ./state\nguarantee: at_least_once", "guarantee", SAFE),
    # Spark's settings
    "shuffle partitions": case("partitions: 2", "partitions: 9", "spark.conf.spark.sql.shuffle.partitions", SAFE, "aggregation"),
    "state store provider": case(
        "partitions: 2", "partitions: 2, spark.sql.streaming.stateStore.providerClass: X",
        "spark.conf.spark.sql.streaming.stateStore.providerClass", SAFE, "aggregation",
    ),
    "interval of the source's log": case(
        "partitions: 2", "partitions: 2, spark.sql.streaming.fileSource.log.compactInterval: 2",
        "spark.conf.spark.sql.streaming.fileSource.log.compactInterval", SAFE,
    ),
    "memory": case("partitions: 2", "partitions: 2, spark.driver.memory: 4g", "spark.conf.spark.driver.memory", SAFE),
    # versions
    "Spark newer, no state": case("", "", "version of spark", SAFE, spark="4.9.0"),
    "Spark newer, with state": case("", "", "version of spark", ACTION, "aggregation", spark="4.9.0"),
    "Spark older, no state": case("", "", "version of spark", ACTION, spark="3.5.0"),
    "Spark older, with state": case("", "", "version of spark", ACTION, "aggregation", spark="4.0.0"),
    # sinks
    "sink added": case("flights}", REPLACED, "sinks.again", SAFE),
    "sink removed": case('\n  table: {type: sqlite, url: "sqlite:///flights.db", table: flights}', "", "sinks.table", SAFE),
    "sink renamed": case("  lake:", "  pond:", "sinks.lake", SAFE, only=False),
    "sink renamed, in its place": case("  lake:", "  pond:", "sinks.pond", BREAKS, only=False),
    "table renamed, in its place": case("  table: {", "  other: {", "sinks.other", BREAKS, only=False),
    "sink renamed, one account of its own": Case(
        (("  lake:", "  pond:"), ("./north", "./elsewhere")), "sinks.pond", BREAKS, only=False
    ),
    "sink renamed, with places of its own": Case(
        (("  lake:", "  pond:"), ("./north", "./elsewhere"), ("./south", "./faraway")), "sinks.pond", SAFE, only=False
    ),
    "account added": case("south: ./south}", "south: ./south, east: ./east}", "sinks.lake.accounts.east", SAFE),
    "account removed": case("{north: ./north, south: ./south}", "{north: ./north}", "sinks.lake.accounts.south", SAFE),
    "account moved": case("./south", "./elsewhere", "sinks.lake.accounts.south.url", BREAKS),
    "account moved, plan unknown": case("./south", "./elsewhere", "sinks.lake.accounts.south.url", BREAKS, seen=False),
    "another kind": case(
        "type: parquet\n    accounts: {north: ./north, south: ./south}\n    route: {column: place}",
        'type: sqlite\n    url: "sqlite:///lake.db"\n    table: lake',
        "sinks.lake.type", ACTION, only=False,
    ),
    "table moved, empty": case("table: flights}", "table: others}", "sinks.table.table", SAFE),
    "route": case("{column: place}", "{column: day}", "sinks.lake.route.column", SAFE),
    "directories of the lake": case("route: {", "partition_by: [day]\n    route: {", "sinks.lake.partition_by", BREAKS),
    "compression": case("route: {", "compression: snappy\n    route: {", "sinks.lake.compression", SAFE),
    "rows of a sink": case("flights}", 'flights, where: "n > 1"}', "sinks.table.where", SAFE),
    "columns of a sink": case("flights}", "flights, exclude: [at]}", "sinks.table.exclude", SAFE),
    "append to upsert": case("flights}", "flights, write: upsert, key: [n]}", "sinks.table.write", ACTION, only=False),
    # places of the pipeline
    "spool": case("home: ./state", "home: ./state\nspool: ./elsewhere", "spool.url", SAFE),
    "checkpoint moved": case("home: ./state", "home: ./state\ncheckpoint: ./elsewhere", "checkpoint.url", BREAKS),
    "quarantine added": case("home: ./state", "home: ./state\nquarantine: ./aside", "quarantine.url", SAFE),
    "nothing": case("", "", "", SAFE),
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    """Pipelines as they ran, each made once: a test changes a copy."""
    made = dict[str, World]()

    def world(of: str) -> World:
        if of not in made:
            made[of] = World(tmp_path_factory.mktemp("ran"), of)
        return made[of]

    return world


@pytest.mark.parametrize("name", CASES)
def test_the_verdict(worlds: Callable[[str], World], tmp_path: Path, name: str) -> None:
    given = CASES[name]
    world = worlds(given.of).copy(tmp_path / "changed")
    world.change(*given.edits)
    found = world.preflight(**given.seen)
    assert found.last_run == 1
    assert found.described
    changes = said(found)
    if not given.part:
        assert changes == {}
        return
    assert changes[given.part].verdict is given.verdict, changes[given.part]
    assert not given.only or list(changes) == [given.part]
    require_said_in_full(found)


def require_said_in_full(found: Preflight) -> None:
    for change in found.changes:
        assert change.reason.endswith(".")
        assert (change.action != "") or change.verdict is SAFE, change
    if not found.breaks:
        found.require_startable()
        return
    with pytest.raises((PipelineChanged, SourcesChanged)) as refusal:
        found.require_startable()
    assert refusal.value.exit_code == 3
    assert refusal.value.remedy


MODES = [
    ("update", "complete", ACTION, True),
    ("complete", "update", SAFE, True),
    ("update", "append", SAFE, True),
    ("update", "append", BREAKS, False),
]


@pytest.mark.parametrize(("before", "now", "verdict", "upserting"), MODES)
def test_an_output_mode_that_was_not_append(
    worlds: Callable[[str], World], tmp_path: Path, before: str, now: str, verdict: Verdict, *, upserting: bool
) -> None:
    world = worlds("aggregation").copy(tmp_path / "changed")
    world.change(*UPSERTING, ("trigger: {", f"output_mode: {before}\ntrigger: {{"))
    world.describe()
    appending = () if upserting else ((", write: upsert, key: [n]", ""),)
    world.change((f"output_mode: {before}", f"output_mode: {now}"), *appending)
    assert said(world.preflight())["output_mode"].verdict is verdict


def test_a_batch_that_may_not_be_in_its_sinks_yet(tmp_path: Path) -> None:
    """As after a run that ended well: only the next start knows that its last batch is there."""
    world = World(tmp_path, "files", settled=False)
    world.change(("  lake:", "  pond:"), ("home: ./state", "home: ./state\nspool: ./elsewhere"))
    changes = said(world.preflight())
    assert changes["sinks.lake"].verdict is ACTION
    assert changes["sinks.lake"].action == "Put it back, run `penstock recover FILE`, and then take it out."
    assert changes["spool.url"].verdict is ACTION


@pytest.mark.parametrize(("settled", "verdict"), [(True, BREAKS), (False, ACTION)])
def test_a_quarantine_that_holds_rows_is_a_place_like_a_sink(tmp_path: Path, verdict: Verdict, *, settled: bool) -> None:
    world = World(tmp_path, "files", settled=settled, aside=True)
    world.change(("./aside", "./elsewhere"))
    assert said(world.preflight())["quarantine.url"].verdict is verdict
    world.change(("quarantine: ./elsewhere", "quarantine: {url: ./aside, max_rows: 9}"))
    assert said(world.preflight())["quarantine.max_rows"].verdict is SAFE
    world.change(("quarantine: {url: ./aside, max_rows: 9}\n", ""))
    assert said(world.preflight())["quarantine.url"].verdict is (SAFE if settled else ACTION)


def test_a_spool_in_which_a_sink_notes_what_was_answered_has_to_come_along(
    worlds: Callable[[str], World], tmp_path: Path
) -> None:
    world = worlds("files").copy(tmp_path / "changed")
    world.change(("trigger: {", "  hook: {type: http, url: 'https://h/r', receiver: idempotent}\ntrigger: {"))
    world.describe()
    world.change(("home: ./state", "home: ./state\nspool: ./elsewhere"))
    assert said(world.preflight())["spool.url"].verdict is ACTION


def test_the_path_of_an_endpoint_is_not_kept_and_that_is_said(worlds: Callable[[str], World], tmp_path: Path) -> None:
    world = worlds("files").copy(tmp_path / "changed")
    world.change(("trigger: {", "  hook: {type: http, url: 'https://h/one', receiver: idempotent}\ntrigger: {"))
    world.describe()
    world.change(("https://h/one', ", "https://h/two', concurrency: 2, key: [n], "))
    found = world.preflight()
    assert found.uncompared == ("sinks.hook.url",)
    assert {change.part: change.verdict for change in found.changes} == {"sinks.hook.concurrency": SAFE, "sinks.hook.key": SAFE}


REPLAYED = [
    (("header: true}", "header: true}, expect: {r: n > 2}"), A + "expect.r.sql", BREAKS),
    (("SELECT * FROM a", OTHER_SQL), "transform.sql", ACTION),
    (("n INT,", "n BIGINT,"), A + "schema", ACTION),
    (("maxFilesPerTrigger: 1", "maxFilesPerTrigger: 9"), A + "options.maxFilesPerTrigger", SAFE),
]


@pytest.mark.parametrize(("edit", "part", "verdict"), REPLAYED)
def test_a_batch_that_spark_still_computes_for_its_state_keeps_its_rows(
    worlds: Callable[[str], World], tmp_path: Path, edit: tuple[str, str], part: str, verdict: Verdict
) -> None:
    """It is decided and delivered, and the driver was killed before Spark noted its end."""
    world = worlds("aggregation").copy(tmp_path / "changed")
    world.change(edit)
    if part.endswith("sql"):
        assert said(world.preflight())[part].verdict is SAFE
    forget_commit(world.directory / "state/checkpoint", 8)
    assert said(world.preflight())[part].verdict is verdict


@pytest.mark.parametrize("spark", ["3.5", "4.0", "4.1", "4.2", "4.3"])
def test_without_a_description_less_is_said_and_nothing_wrong(tmp_path: Path, spark: str) -> None:
    """As at the first start after an upgrade from a Penstock that kept none."""
    world = World(tmp_path, "aggregation", spark=spark)
    world.forget()
    found = world.preflight()
    assert (found.described, found.last_run, found.changes) == (False, 1, ())
    world.change(("maxFilesPerTrigger: 1", "maxFilesPerTrigger: 2"), ("partitions: 2", "partitions: 9"))
    assert list(said(world.preflight())) == ["spark.conf.spark.sql.shuffle.partitions"]
    changes = said(world.preflight(state=DEDUPE))
    assert (changes["state"].verdict is BREAKS) if spark != "3.5" else ("state" not in changes)
    world.change(("  a: {", "  c: {"))
    assert said(world.preflight(order=("c",)))["sources.a"].verdict is BREAKS
    with pytest.raises(SourcesChanged, match=r"Since the last run sources\.a was removed\."):
        world.preflight(seen=False).require_startable()


def test_a_checkpoint_without_state_needs_no_description_for_that(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    world.forget()
    assert said(world.preflight(state=SUM))["state"].verdict is BREAKS


def test_plans_are_compared_by_their_text_under_one_spark_only(tmp_path: Path) -> None:
    world = World(tmp_path, "rocksdb")
    assert list(said(world.preflight(state=held("dedupe", "[other]"), spark="4.9.0"))) == ["version of spark"]
    assert said(world.preflight(state=SUM, spark="4.9.0"))["state"].verdict is BREAKS


def test_an_older_run_is_never_taken_for_the_last_one(tmp_path: Path) -> None:
    """Another home had the newest run: what this one kept is of a generation that did not decide the newest batch."""
    world = World(tmp_path, "files")
    runs = tmp_path / "state/runs"
    (runs / "1.json").rename(runs / "9.json")
    assert not world.preflight().described
    (runs / "9.json").rename(runs / "1.json")
    assert world.preflight().described
    (runs / "1.json").write_text((runs / "1.json").read_text().replace(str(world.ledger_id), "0" * 32))
    assert not world.preflight().described
    for damaged in ("", "{}", '{"format":"penstock.run","version":99}', "garbage"):
        (runs / "1.json").write_text(damaged)
        assert not world.preflight().described


def test_another_checkpoint_that_was_adopted_is_compared_with_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    pipeline = Pipeline.from_file(world.file)
    (tmp_path / "state/checkpoint").rename(tmp_path / "aside")
    assert pipeline.adopt(reason="another query", yes=True).done
    world.change(("  a: {", "  c: {"))
    assert world.preflight(order=("c",)) == Preflight()


def test_the_action_for_a_sink_that_left_works(tmp_path: Path) -> None:
    world = World(tmp_path, "files", settled=False)
    kept = world.file.read_text()
    world.change(("  lake:", "  pond:"), ("./north", "./north2"), ("./south", "./south2"))
    assert said(world.preflight())["sinks.lake"].verdict is ACTION
    changed = world.file.read_text()
    world.file.write_text(kept)
    Pipeline.from_file(world.file).recover()
    world.file.write_text(changed)
    assert said(world.preflight())["sinks.lake"].verdict is SAFE


def test_a_run_is_refused_before_spark_starts(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    (tmp_path / "in/a").mkdir(parents=True)
    Pipeline.from_file(world.file).require_startable()
    world.change((KAFKA, "{format: rate"))
    with pytest.raises(SourcesChanged, match=r"Since the last run sources\.a\.format changed from csv to rate\."):
        Pipeline.from_file(world.file).require_startable()
    world.change(("home: ./state", "home: ./state\nguarantee: at_least_once"))
    Pipeline.from_file(world.file).require_startable()


def test_secrets_and_values_of_the_environment_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IN", "secret-value")
    monkeypatch.setenv("PASSWORD", "hunter2-and-more")
    world = World(tmp_path, "files")
    world.change(
        ("header: true", "header: true, nullValue: '${IN}'"), ("sqlite:///flights.db", "postgresql://me:${PASSWORD}@nowhere/db")
    )
    world.change(("type: sqlite", "type: postgres"), ("SELECT * FROM a", "SELECT * FROM a WHERE '${PASSWORD}' != ''"))
    world.describe()
    kept = (tmp_path / "state/runs/1.json").read_text()
    assert "secret-value" not in kept
    assert "hunter2" not in kept
    monkeypatch.setenv("IN", "other-value")
    monkeypatch.setenv("PASSWORD", "another-password")
    found = world.preflight()
    assert found.changes == ()
    assert "sources.a.options.nullValue" in found.uncompared


def test_what_is_kept_is_bounded_and_its_user_s_alone(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    world.change(("SELECT * FROM a", "SELECT " + ", ".join(f"n + {number}" for number in range(1_000)) + " FROM a"))
    world.describe()
    runs = tmp_path / "state/runs"
    [file] = runs.iterdir()
    assert file.stat().st_size < 3_000
    assert (runs.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    description = recorded_run(str(tmp_path / "state"), world.generation, ledger_id=LedgerId(str(world.ledger_id)))
    assert description is not None
    assert max(map(len, description.query.values())) <= LONGEST
    world.change(("n + 999", "n + 998"))
    assert said(world.preflight())["transform.sql"].verdict is SAFE


def test_a_module_beside_the_file(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    world.change(("sql: SELECT * FROM a", "python: jobs:clean"))
    (tmp_path / "jobs.py").write_text("def clean(spark, sources):\n    return sources['a']\n")
    world.describe()
    assert world.preflight().changes == ()
    (tmp_path / "jobs.py").write_text("def clean(spark, sources):\n    return sources['a'].where('n > 1')\n")
    changes = said(world.preflight())
    assert {part: change.verdict for part, change in changes.items()} == {"transform.module": SAFE}
