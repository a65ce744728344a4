"""What rules do to rows of files in a real query, and what becomes of rows that a sink cannot take."""

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from penstock.spark.session_settings import applied
from tests.crash.commandline import Ended, penstock
from tests.spark.streams import forget_commit, put

HEADER = "id,origin,delay"
PIPELINE = """pipeline: flights
home: ./state/flights
sources:
  flights:
    format: csv
    path: ./incoming
    schema: "id INT, origin STRING, delay INT"
    options: {header: true}
    expect:
      numbered: id IS NOT NULL
      from_new_york: {sql: "origin IN ('EWR', 'JFK', 'LGA')", on_violation: drop}
      delay: {sql: delay BETWEEN -120 AND 2000, on_violation: quarantine}
transform:
  sql: SELECT origin, delay FROM flights
sinks:
  warehouse: {type: sqlite, url: "sqlite:///flights.db", table: flights}
quarantine: ./quarantine
trigger: {available_now: true}
"""

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


class Flights:
    """A pipeline in a directory, this file's unless another `text` is given."""

    def __init__(self, directory: Path, *, text: str = "", **changes: str) -> None:
        self.directory, self.file = directory, directory / "flights.yaml"
        text = text or PIPELINE
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)
        (directory / "incoming").mkdir()

    def put(self, name: str, *rows: str) -> Path:
        return put(self.directory / "incoming", name, HEADER, *rows)

    def run(self, command: str, *, code: int = 0, faults: str = "") -> Ended:
        done = penstock(*command.split()[1:], directory=self.directory, faults=faults)
        assert done.code == code, f"{command}\n{done}"
        return done

    def delivered(self) -> "Counter[tuple[object, ...]]":
        with sqlite3.connect(self.directory / "flights.db") as connection:
            found = Counter(connection.execute("SELECT * FROM flights"))
        connection.close()
        return found

    def aside(self) -> list[dict[str, Any]]:
        files = list((self.directory / "quarantine").rglob("*.parquet"))
        return list(pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist()) if files else []


def test_a_row_that_fails_the_batch_is_counted_and_named(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    flights.put("a.csv", "1,EWR,5")
    flights.run("penstock run flights.yaml --json")
    file = flights.put("b.csv", "2,EWR,5", ",EWR,6", ",JFK,7")
    failed = flights.run("penstock run flights.yaml --json", code=1)
    text = " ".join((failed.out + failed.err).split())
    assert "2 rows of the batch do not meet sources.flights.expect.numbered (id IS NOT NULL). The first is in file:///" in text
    assert flights.delivered() == Counter([("EWR", 5)])
    flights.file.write_text(flights.file.read_text().replace("id IS NOT NULL", "{sql: id IS NOT NULL, on_violation: drop}"))
    last = json.loads(flights.run("penstock run flights.yaml --json").out.splitlines()[-1])
    assert last["dropped"] == {"flights": {"numbered": 2}}
    assert flights.delivered() == Counter([("EWR", 5), ("EWR", 5)])
    assert file.exists()


@pytest.mark.parametrize(("limit", "said"), [("max_rows: 1", "max_rows: 1"), ("max_share: 0.3", "max_share: 0.3")])
def test_too_many_rows_for_the_quarantine_fail_the_batch(tmp_path: Path, limit: str, said: str) -> None:
    flights = Flights(tmp_path, **{"quarantine: ./quarantine": f"quarantine: {{url: ./quarantine, {limit}}}"})
    flights.put("a.csv", "1,EWR,5", "2,JFK,9999", "3,JFK,9999", "4,XXX,1")
    failed = flights.run("penstock run flights.yaml --json", code=1)
    text = " ".join((failed.out + failed.err).split())
    assert "Of 4 rows of the batch, 2 do not meet a rule (2 of sources.flights.expect.delay)" in text
    assert f"`quarantine: {{{said}}}` allows fewer" in text
    assert flights.aside() == []


def test_a_line_that_does_not_fit_the_schema_is_on_one_side(tmp_path: Path) -> None:
    """Spark judges a line by the columns that it reads: the transform reads one, and the rule another."""
    rule = "fits: {sql: _corrupt_record IS NULL, on_violation: quarantine}"
    flights = Flights(
        tmp_path,
        **{
            "delay INT": "delay INT, _corrupt_record STRING",
            "numbered: id IS NOT NULL": rule,
            "SELECT origin, delay": "SELECT upper(origin) AS origin, 1 AS n",
        },
    )
    flights.put("a.csv", "1,EWR,5", "2,JFK,x", "y,LGA,7", "4,EWR,7,too many")
    flights.run("penstock run flights.yaml")
    assert flights.delivered() == Counter([("EWR", 1)])
    lines = Counter(json.loads(row["row"])["_corrupt_record"] for row in flights.aside())
    assert lines == Counter(["2,JFK,x", "y,LGA,7", "4,EWR,7,too many"])


def test_too_many_rows_for_the_quarantine_in_an_hour_fail_the_batch(tmp_path: Path) -> None:
    flights = Flights(tmp_path, **{"quarantine: ./quarantine": "quarantine: {url: ./quarantine, max_rows_per_hour: 3}"})
    for name, code in (("a", 0), ("b", 1)):
        flights.put(f"{name}.csv", "1,EWR,5", "2,JFK,9999", "3,JFK,9999")
        done = flights.run("penstock run flights.yaml --json", code=code)
    text = " ".join((done.out + done.err).split())
    assert "2 rows of the batch are for the quarantine, and 2 went there in the last hour" in text
    assert len(flights.aside()) == 2


def test_a_decided_batch_does_not_enter_the_state_by_other_rules(tmp_path: Path) -> None:
    """Its rows are delivered; Spark computes it again for the state alone, since it never noted its end."""
    counted = {
        "SELECT origin, delay FROM flights": "SELECT origin, count(*) AS n FROM flights GROUP BY origin",
        "table: flights}": "table: flights, write: replace}\noutput_mode: complete",
    }
    flights = Flights(tmp_path, **counted)
    flights.put("a.csv", "1,EWR,5", "2,XXX,5", "3,JFK,9999")
    flights.run("penstock run flights.yaml --json")
    forget_commit(tmp_path / "state/flights/checkpoint", 0)
    given = flights.file.read_text()
    flights.file.write_text(given.replace("'LGA')", "'JFK')"))  # as many rows, and perhaps others
    assert "Spark computes it once more for its state" in flights.run("penstock run flights.yaml --json", code=3).err
    shutil.rmtree(tmp_path / "state/flights/runs")
    for old, new, said in (
        ("'LGA')", "'LGA', 'XXX')", "was decided with 1 rows dropped by rules, and now they drop 0"),
        ("id IS NOT NULL", "id > 1", "was decided with 1 rows dropped by rules, and now they drop 2"),
        ("2000", "9999", "was decided with 1 records in quarantine, and now 0 of it cannot be decoded or do not meet a rule"),
    ):
        flights.file.write_text(given.replace(old, new))
        assert said in " ".join(flights.run("penstock run flights.yaml --json", code=1).err.split())
    flights.file.write_text(given)
    flights.run("penstock run flights.yaml --json")
    assert flights.delivered() == Counter([("EWR", 1)])


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("nothing > 1", "cannot compute from the rows"),
        ("delay + 1", "expected true or false"),
        ("rand() < 0.5", "rand gives another value each time"),
        ("current_date() > '2020-01-01'", "asks for the time by current_date"),
        ("DATE 'Today' > DATE '2020-01-01'", "asks for the time by Today"),
        ("timestamp_ntz /* of start */ ' now ' > '2020-01-01'", "asks for the time by now"),
        ("delay > (SELECT 1)", "looks at more than the row itself"),
        ("max(delay) > 1", "cannot compute from the rows"),
    ],
)
def test_what_is_no_rule_is_refused_before_the_start(tmp_path: Path, rule: str, said: str) -> None:
    flights = Flights(tmp_path, **{"numbered: id IS NOT NULL": f'numbered: "{rule}"'})
    refused = flights.run("penstock check flights.yaml", code=2)
    text = " ".join((refused.out + refused.err).split())
    assert "sources.flights.expect.numbered" in text
    assert said in text


ZONED = """
def rows(spark, sources):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return sources["flights"].select("origin", "delay")
"""


def test_a_transform_that_sets_what_rules_depend_on_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """The query would compute the rule in the old time zone, and the count of each batch in the new one."""
    rule = "numbered: \"hour(TIMESTAMP '2020-01-01 00:00:00Z') < 25\""
    flights = Flights(
        tmp_path, **{"numbered: id IS NOT NULL": rule, "sql: SELECT origin, delay FROM flights": "python: zoned:rows"}
    )
    (tmp_path / "zoned.py").write_text(ZONED)
    with applied(spark, {"spark.sql.session.timeZone": "UTC"}):
        refused = flights.run("penstock run flights.yaml --json", code=2)
    assert "The transform sets spark.sql.session.timeZone, after the rules" in " ".join((refused.out + refused.err).split())


def test_a_sink_that_is_added_later_gets_the_rows_that_meet_the_rules(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    for name, delay in (("a", 5), ("b", 6)):
        flights.put(f"{name}.csv", f"1,EWR,{delay}", "2,JFK,9999", "3,XXX,1")
        flights.run("penstock run flights.yaml --json")
    lake = "  lake: {type: parquet, accounts: {all: ./lake}}\nquarantine:"
    flights.file.write_text(flights.file.read_text().replace("quarantine:", lake, 1))
    flights.run("penstock backfill flights.yaml --sink lake --json")
    rows = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet").to_table().to_pylist()
    assert Counter((row["origin"], row["delay"]) for row in rows) == flights.delivered() == Counter([("EWR", 5), ("EWR", 6)])


def test_a_source_that_is_joined_with_itself_is_refused(tmp_path: Path) -> None:
    joined = "SELECT a.origin, b.delay FROM flights a JOIN flights b ON a.id = b.id"
    flights = Flights(tmp_path, **{"SELECT origin, delay FROM flights": joined})
    flights.put("a.csv", "1,EWR,5")
    refused = flights.run("penstock run flights.yaml --json", code=3)
    assert "has `expect`, but the query reads it more than once" in " ".join((refused.out + refused.err).split())


def test_a_union_of_a_source_with_itself_has_each_row_in_quarantine_once(tmp_path: Path) -> None:
    twice = "SELECT a.origin, a.delay FROM flights a UNION ALL SELECT origin, delay FROM flights"
    flights = Flights(tmp_path, **{"SELECT origin, delay FROM flights": twice})
    flights.put("a.csv", "1,EWR,5", "2,JFK,9999", "3,XXX,1")
    last = json.loads(flights.run("penstock run flights.yaml --json").out.splitlines()[-1])
    assert (last["rows_out"], last["dropped"]) == (2, {"flights": {"from_new_york": 1}})
    assert [row["row"] for row in flights.aside()] == ['{"id":2,"origin":"JFK","delay":9999}']


FAULTS = ("stage.collect=error", "ledger.sqlite_commit=lost", "rename.move=lost", "parquet.marker.write=error")


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_each_row_is_on_one_side_once(tmp_path: Path, fault: str) -> None:
    """Kills at every point are in tests/crash/test_quarantine_killed.py: of the decision on, the rows go the same way."""
    flights = Flights(tmp_path)
    flights.put("a.csv", "1,EWR,5", "2,JFK,9999", "3,XXX,1")
    penstock("run", "flights.yaml", "--json", directory=tmp_path, faults=fault)
    flights.run("penstock run flights.yaml --json")
    assert flights.delivered() == Counter([("EWR", 5)])
    assert [row["row"] for row in flights.aside()] == ['{"id":2,"origin":"JFK","delay":9999}']
    assert json.loads(flights.run("penstock status flights.yaml --json").out)["dropped"] == {"flights": {"from_new_york": 1}}
    flights.run("penstock verify flights.yaml")


LAKE = """sinks:
  lake:
    type: parquet
    accounts: {EWR: ./lake/ewr, JFK: ./lake/jfk}
    route: {column: origin}
    unrouted: quarantine
  warehouse: {type: sqlite, url: "sqlite:///flights.db", table: flights, write: upsert, key: [origin], invalid_rows: quarantine}
"""


def test_rows_that_a_sink_cannot_take_go_into_the_quarantine_and_the_others_are_delivered(tmp_path: Path) -> None:
    sinks = next(line for line in PIPELINE.splitlines() if "type: sqlite" in line)
    flights = Flights(tmp_path, **{f"sinks:\n{sinks}\n": LAKE, "origin IN ('EWR'": "origin IS NULL OR origin IN ('EWR'"})
    flights.put("a.csv", "1,EWR,5", "2,LGA,6", "3,,7", "4,JFK,8")
    last = json.loads(flights.run("penstock run flights.yaml --json").out.splitlines()[-1])
    assert {name: sink["rows"] for name, sink in last["sinks"].items()} == {"lake": 2, "warehouse": 3, "quarantine": 3}
    assert flights.delivered() == Counter([("EWR", 5), ("LGA", 6), ("JFK", 8)])
    found = Counter((row["sink"], row["row"]) for row in flights.aside())
    unrouted, no_key = '{"origin": "LGA", "delay": 6}', '{"origin": null, "delay": 7}'
    assert found == Counter([("lake", unrouted), ("lake", no_key), ("warehouse", no_key)])
    assert "found NULL in column 'origin'" in " ".join(flights.run("penstock quarantine list flights.yaml").out.split())
    flights.run("penstock verify flights.yaml")
