"""Lineage as a server of OpenLineage gets it, read with the classes that OpenLineage generates from its JSON Schema."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from openlineage.client import generated
from openlineage.client.generated import base
from tests.unit.receivers import Receiver, Request, closed_url, receiving

from penstock.core.model import AccountName, Generation, SinkName, SinkTotals, Totals
from penstock.errors import Fenced, PublishFailed
from penstock.observe.export.lineage import Lineage
from penstock.observe.export.observation import Observation
from penstock.observe.export.places import datasets_of, datasets_read
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.spec.export import OpenLineage
from penstock.spec.pipeline import PipelineSettings

LAKE = SinkName("lake")
BEFORE: SinkTotals = {LAKE: {AccountName("EWR"): Totals(rows=100, files=1, size_bytes=10)}}
AFTER: SinkTotals = {
    LAKE: {
        AccountName("EWR"): Totals(rows=105, files=2, size_bytes=40),
        AccountName("JFK"): Totals(rows=7, files=1, size_bytes=9),
    }
}


def settings(home: Path) -> PipelineSettings:
    accounts = {"EWR": str(home / "ewr"), "JFK": "az://flights@jfk/raw"}
    sinks = {"lake": {"type": "parquet", "accounts": accounts, "route": {"column": "origin"}}, "shown": {"type": "console"}}
    sources = {"s": {"format": "csv", "path": str(home / "in"), "schema": "id INT"}}
    return PipelineSettings(pipeline="flights", home=home, sources=sources, sinks=sinks)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def observed(home: Path, given: OpenLineage, clock: Clock | None = None) -> tuple[Observation, Lineage]:
    made = settings(home)
    lineage = Lineage("flights", given, home=str(home), sources=made.sources, sinks=made.sinks, clock=clock or Clock())
    return Observation([lineage]), lineage


def opened(observation: Observation) -> None:
    observation.describe(source_columns={"s": [("id", "int")]}, sink_columns={"lake": [("id", "int"), ("m", "map<string,int>")]})
    observation.describe(spark_version="4.0.1", is_bounded=True)
    observation.opened(Generation(3), BEFORE)


def deliver(observation: Observation, totals: SinkTotals = AFTER) -> None:
    sinks = {LAKE: SinkProgress(rows=12)}
    observation.batch(BatchProgress(batch_id=0, rows_out=12, rows_read=13, sinks=sinks, path="driver"), totals)


def events(receiver: Receiver) -> list[Any]:
    return [checked(request) for request in receiver.requests]


def checked(request: Request) -> Any:
    """The event, if every part of it is what OpenLineage's schema has: a key that is unknown, or missing, is an error."""
    assert (request.path, request.headers["content-type"]) == ("/api/v1/lineage", "application/json")
    event = request.json
    assert event["schemaURL"] == base.RunEvent._get_schema()
    base.Run(event["run"]["runId"])
    base.RunEvent(**{key: value for key, value in event.items() if key != "schemaURL"})
    for facet in facets(event):
        kind = KINDS[facet["_schemaURL"]]
        kind(
            **{key.removeprefix("_") if key == "_producer" else key: value for key, value in facet.items() if key != "_schemaURL"}
        )
    assert json.dumps(event)
    return event


def facets(found: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(found, dict):
        if "_schemaURL" in found:
            yield found
        for each in found.values():
            yield from facets(each)
    elif isinstance(found, list):
        for each in found:
            yield from facets(each)


def kinds() -> Iterator[tuple[str, Any]]:
    for module in iter_modules(generated.__path__):
        for value in vars(import_module(f"{generated.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, base.BaseFacet):
                yield value._get_schema(), value


KINDS = dict(kinds())


def test_a_run_is_told_with_datasets_columns_and_counts(tmp_path: Path) -> None:
    with receiving() as receiver:
        observation, _ = observed(tmp_path, OpenLineage(url=receiver.url, namespace="prod", token="word", headers={"X": "y"}))
        opened(observation)
        deliver(observation)
        observation.ended(None)
        start, complete = events(receiver)
        headers = receiver.requests[0].headers
    assert (headers["authorization"], headers["x"]) == ("Bearer word", "y")
    assert [event["eventType"] for event in (start, complete)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("prod", "flights")
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert complete["run"]["facets"]["processing_engine"]["version"] == "4.0.1"
    (read,) = complete["inputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "in"))
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 13
    assert [(field["name"], field["type"]) for field in read["facets"]["schema"]["fields"]] == [("id", "int")]
    newark, kennedy = complete["outputs"]
    assert (newark["namespace"], newark["name"]) == ("file", str(tmp_path / "ewr"))
    assert (kennedy["namespace"], kennedy["name"]) == ("az://flights@jfk", "raw")
    assert [field["type"] for field in kennedy["facets"]["schema"]["fields"]] == ["int", "map<string,int>"]
    written = [each["outputFacets"]["outputStatistics"] for each in (newark, kennedy)]
    assert [(each["rowCount"], each["size"], each["fileCount"]) for each in written] == [(5, 30, 1), (7, 9, 1)]
    assert [each["outputFacets"]["outputStatistics"]["rowCount"] for each in start["outputs"]] == [0, 0]


def test_a_run_that_goes_on_says_so_at_the_interval(tmp_path: Path) -> None:
    clock = Clock()
    with receiving() as receiver:
        observation, _ = observed(tmp_path, OpenLineage(url=receiver.url), clock)
        opened(observation)
        for at_s in (1.0, 60.0, 61.0, 130.0):
            clock.now_s = at_s
            deliver(observation)
        observation.ended(None)
        assert [event["eventType"] for event in events(receiver)] == ["START", "RUNNING", "RUNNING", "COMPLETE"]


@pytest.mark.parametrize(
    ("error", "state"),
    [(PublishFailed("Row (7, 'Lovelace').", remedy="x"), "FAIL"), (Fenced("Newer.", remedy="x"), "ABORT")],
)
def test_an_error_ends_the_run_and_is_not_quoted(tmp_path: Path, error: Exception, state: str) -> None:
    with receiving() as receiver:
        observation, _ = observed(tmp_path, OpenLineage(url=receiver.url))
        opened(observation)
        observation.ended(error)
        end = events(receiver)[-1]
        assert all(b"Lovelace" not in request.body for request in receiver.requests)
    assert end["eventType"] == state
    text = end["run"]["facets"].get("errorMessage", {}).get("message")
    assert text == ("The run ended with PublishFailed, exit code 1." if state == "FAIL" else None)


def test_a_run_that_is_refused_begins_and_fails(tmp_path: Path) -> None:
    with receiving() as receiver:
        observation, _ = observed(tmp_path, OpenLineage(url=receiver.url))
        observation.ended(PublishFailed("x", remedy="x"))
        assert [event["eventType"] for event in events(receiver)] == ["START", "FAIL"]


def test_the_next_run_ends_one_that_was_killed(tmp_path: Path) -> None:
    with receiving() as receiver:
        killed, _ = observed(tmp_path, OpenLineage(url=receiver.url))
        opened(killed)
        receiver.wait_for(1)
        following, _ = observed(tmp_path, OpenLineage(url=receiver.url))
        opened(following)
        following.ended(None)
        last, _ = observed(tmp_path, OpenLineage(url=receiver.url))
        opened(last)
        last.ended(None)
        told = [(event["eventType"], event["run"]["runId"]) for event in events(receiver)]
    assert [state for state, _ in told] == ["START", "ABORT", "START", "COMPLETE", "START", "COMPLETE"]
    assert told[1][1] == told[0][1]


def test_a_run_goes_on_beside_one_that_is_refused_and_one_that_it_fenced(tmp_path: Path) -> None:
    with receiving() as receiver:
        fenced, running, refused, last = (observed(tmp_path, OpenLineage(url=receiver.url))[0] for _ in range(4))
        opened(fenced)
        receiver.wait_for(1)
        opened(running)
        receiver.wait_for(3)
        refused.ended(PublishFailed("x", remedy="x"))
        fenced.ended(Fenced("Newer.", remedy="x"))
        opened(last)  # `running` was killed
        last.ended(None)
        told = [(event["eventType"], event["run"]["runId"]) for event in events(receiver)]
    first, second = told[0][1], told[2][1]
    assert [state for state, run_id in told if run_id == first] == ["START", "ABORT", "ABORT"]
    assert [state for state, run_id in told if run_id == second] == ["START", "ABORT"]
    assert [state for state, run_id in told if run_id not in {first, second}] == ["START", "FAIL", "START", "COMPLETE"]


def test_the_client_finds_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        file = tmp_path / "openlineage.yml"
        file.write_text(f"transport: {{type: http, url: '{receiver.url}'}}\n")
        monkeypatch.setenv("OPENLINEAGE_CONFIG", str(file))
        observation, _ = observed(tmp_path, OpenLineage())
        opened(observation)
        observation.ended(None)
        assert len(events(receiver)) == 2


def test_the_path_of_a_url_is_kept(tmp_path: Path) -> None:
    with receiving() as receiver:
        observation, _ = observed(tmp_path, OpenLineage(url=f"{receiver.url}/tenant", endpoint="/v2/events"))
        opened(observation)
        observation.ended(None)
        assert {request.path for request in receiver.requests} == {"/tenant/v2/events"}


@pytest.mark.parametrize("fault", ["hangs", "is away"])
def test_a_server_that_hangs_or_is_away_costs_events_and_nothing_else(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = fault == "hangs"
    monkeypatch.setattr("penstock.observe.export.observation.FLUSH_S", 0.05 if hangs else 30)
    monkeypatch.setattr("penstock.observe.export.lineage._TRIES", 0)
    with receiving(hangs=hangs) as receiver:
        observation, lineage = observed(tmp_path, OpenLineage(url=receiver.url if hangs else closed_url(), timeout="1h"))
        opened(observation)
        observation.ended(None)
        assert lineage.queue.lost == 2


SINKS = {
    "postgres": ({"url": "postgresql://u:p@h/db", "table": "t"}, "postgres://h:5432", "db.public.t"),
    "mysql": ({"url": "mysql://u:p@h:33/db", "table": "t"}, "mysql://h:33", "db.t"),
    "redshift": ({"url": "redshift://u:p@h/db", "table": "s.t"}, "redshift://h:5439", "db.s.t"),
    "sqlserver": ({"url": "sqlserver://u:p@h/db", "table": "t"}, "mssql://h:1433", "db.dbo.t"),
    "cassandra": ({"url": "cassandra://u:p@a,b:1/ks", "table": "t", "key": ["id"]}, "cassandra://a:9042", "ks.t"),
    "sqlite": ({"url": "sqlite:////d/x.db", "table": "t"}, "file", "/d/x.db/t"),
    "delta": ({"path": "s3://bucket/a/b"}, "s3://bucket", "a/b"),
    "iceberg": ({"catalog": "sqlite:////c.db", "table": "a.t", "warehouse": "s3://w/x"}, "s3://w", "a.t"),
    "kafka": ({"bootstrap": "k1:9092,k2:9092", "topic": "out"}, "kafka://k1:9092", "out"),
    "http": ({"url": "https://h/hook/secret"}, "https://h", "x"),
}


@pytest.mark.parametrize("kind", SINKS)
def test_datasets_are_named_as_openlineage_names_them_without_a_password(tmp_path: Path, kind: str) -> None:
    given, namespace, name = SINKS[kind]
    sinks: dict[str, Any] = {"x": {"type": kind, **given}}
    made = PipelineSettings(
        pipeline="p", home=tmp_path, guarantee="at_least_once", sources={"s": {"format": "rate"}}, sinks=sinks
    )
    ((_, found),) = datasets_of(made.sinks["x"], SinkName("x"))
    assert (found.namespace, found.name) == (namespace, name)


def test_topics_that_are_read_are_datasets(tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": "k:9092", "subscribe": "a, b"}
    made = PipelineSettings(
        pipeline="p", home=tmp_path, sources={"s": {"format": "kafka", "options": options}}, sinks={"c": {"type": "console"}},
        guarantee="at_least_once",
    )  # fmt: skip
    assert [(each.namespace, each.name) for each in datasets_read(made.sources["s"], "s")] == [
        ("kafka://k:9092", "a"),
        ("kafka://k:9092", "b"),
    ]
