"""Records of the quarantine, replayed into real sinks: each is delivered once, by the pipeline as it is by then."""

import itertools
import json
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.conformance.http_rig import endpoint
from tests.crash.commandline import penstock
from tests.crash.kafka_world import create
from tests.killed import KilledError
from tests.servers.fixtures import server, unique
from tests.spark.page import Page, run, run_beside
from tests.spark.test_rules import Flights

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark", "kills_raise")]

_numbers = itertools.count()
ONCE = """
def rows(spark, sources):
    return sources["flights"].dropDuplicates()
"""
PAGE = Page("replay")
YAML, CORRECTED = PAGE.blocks("yaml")
LAKE = next(line for line in YAML.splitlines() if "lake:" in line)
STRICT = next(line for line in YAML.splitlines() if "on_violation: quarantine" in line)


class Replayed(Flights):
    """The page's pipeline."""

    def __init__(self, directory: Path, **changes: str) -> None:
        super().__init__(directory, text=YAML, **changes)

    def change(self, **changes: str) -> None:
        text = self.file.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)

    def replay(self, *words: str, code: int = 0, fault: str = "") -> Any:
        return self.run(f"penstock quarantine replay flights.yaml --json {' '.join(words)}", code=code, faults=fault).last

    def refused(self, *words: str) -> str:
        done = self.run(f"penstock quarantine replay flights.yaml --json {' '.join(words)}", code=3)
        return " ".join(done.err.split())

    def deliver(self) -> Any:
        return self.run("penstock run flights.yaml --json").last

    def lake(self) -> "Counter[tuple[object, ...]]":
        files = list((self.directory / "lake").rglob("*.parquet"))
        rows = pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
        return Counter((row["id"], row["origin"], row["delay"]) for row in rows)

    def listed(self) -> Any:
        return json.loads(self.run("penstock quarantine list flights.yaml --json").out)

    def verified(self) -> Any:
        found = json.loads(self.run("penstock verify flights.yaml --json").out)
        assert found["ok"]
        return found["rows"]


def test_the_page_works_and_a_killed_replay_is_finished_by_the_next(tmp_path: Path) -> None:
    flights = Replayed(tmp_path)
    flights.file.rename(tmp_path / "replay.yaml")
    flights.file = tmp_path / "replay.yaml"
    flights.put("a.csv", "1,EWR,5", "2,JFK,2500", "3,LGA,7", "4,JFK,9999")
    assert run_beside(tmp_path, "penstock run replay.yaml").returncode == 0
    flights.change(**{STRICT: CORRECTED.rstrip("\n")})
    listing, plan, replay, *rest = PAGE.commands
    assert "2500" in run_beside(tmp_path, listing).stdout
    planned = " ".join(run_beside(tmp_path, plan).stdout.split())
    assert "3 records of 3 in the quarantine would be replayed: 2 of source flights, 1 for sink lake alone." in planned
    assert flights.lake() == Counter([(1, "EWR", 5)])
    assert run(tmp_path, replay, faults="ledger.sqlite_commit=kill@2").returncode == -signal.SIGKILL
    for command in (replay, replay, *rest):
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert "source flights: 4 in = 2 to the transform + 2 in the quarantine + 0 dropped." in done.stdout
    assert flights.lake() == Counter([(1, "EWR", 5), (2, "JFK", 2500)])
    assert flights.delivered() == Counter([(1, "EWR", 5), (3, "LGA", 7), (2, "JFK", 2500)])


ROWS = ("1,EWR,5", "2,JFK,2500", "2,JFK,2500", "3,LGA,7", "4,JFK,9999")


def test_what_is_chosen_is_delivered_once_and_what_is_refused_again_keeps_its_history(tmp_path: Path) -> None:
    flights = Replayed(tmp_path)
    flights.put("a.csv", *ROWS)
    flights.deliver()
    flights.change(**{STRICT: CORRECTED.rstrip("\n"), "JFK: ./lake/jfk": "JFK: ./lake/jfk, LGA: ./lake/lga"})
    assert flights.replay()["records"] == 4
    assert flights.replay("--batch", "7", "--yes")["records"] == 0
    done = flights.replay("--reason", "lake", "--yes")
    assert (done["records"], done["rows_out"], done["totals"]["lake"]["rows"], done["waiting"]) == (1, 1, 1, 3)
    assert flights.lake() == Counter([(1, "EWR", 5), (3, "LGA", 7)])
    assert flights.delivered() == Counter([(1, "EWR", 5), (3, "LGA", 7)])
    [receipts] = [file for file in (tmp_path / "quarantine").rglob("*.parquet") if "g2-" in file.name]
    held = receipts.rename(tmp_path / "held")
    assert "whether 4 of the 4 records were replayed then is not known" in flights.refused("--yes")
    held.rename(receipts)
    done = flights.replay("--yes")
    assert (done["records"], done["rows_out"], done["refused"], done["waiting"]) == (3, 2, 1, 1)
    again = next(each for each in flights.listed() if not each["replayed"])
    assert [(each["batch"], each["generation"]) for each in again["history"]] == [(0, 1)]
    assert again["error"] == "expect.delay is not met: delay BETWEEN -120 AND 5000"
    assert again["row"] == '{"id":4,"origin":"JFK","delay":9999}'
    assert flights.replay("--rows", again["id"], "--yes")["refused"] == 1
    flights.put("b.csv", "5,JFK,1")
    flights.deliver()
    whole = Counter([(1, "EWR", 5), (3, "LGA", 7), (2, "JFK", 2500), (2, "JFK", 2500), (5, "JFK", 1)])
    assert flights.lake() == flights.delivered() == whole
    rows = flights.verified()
    assert (rows["replays"], rows["waiting"]) == ({"records": 5, "rows_out": 3, "aside": 2}, 1)
    assert rows["sources"] == {"flights": {"rows_in": 6, "dropped": 0, "aside": 3, "to_transform": 3}}
    assert rows["sinks"]["lake"] == {"ok": True, "rows_in": 3, "rows_out": 2, "aside": 1}
    assert "g1-b0" in {row["replayed"][:5] for row in flights.aside() if row["replayed"]}
    kinds = [row["kind"] for row in json.loads(flights.run("penstock history flights.yaml --json").out)]
    assert kinds.count("replayed") == 3
    assert "were replayed at position" in flights.run("penstock rewind flights.yaml --to-batch 0 --json", code=3).err
    assert len([each for each in flights.listed() if each["replayed"]]) == 5
    assert "expect.delay" in flights.run(f"penstock quarantine show flights.yaml --id {again['id']}").out


FAULTS = ("ledger.sqlite_commit=kill@2", "sqlite.commit=kill", "ledger.sqlite_commit=lost@2")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_replay_that_is_killed_delivers_each_record_once(tmp_path: Path, fault: str) -> None:
    """Every step is in tests/unit/test_commit_replay.py: this is the whole way, with the start of a driver in between."""
    flights = Replayed(tmp_path)
    flights.put("a.csv", *ROWS)
    flights.deliver()
    flights.change(**{STRICT: CORRECTED.rstrip("\n")})
    if "kill" in fault:
        with pytest.raises(KilledError):
            flights.run("penstock quarantine replay flights.yaml --yes --json", faults=fault)
    else:
        flights.replay("--yes", fault=fault)
    flights.verified()
    flights.deliver()
    flights.replay("--yes")
    assert flights.lake() == Counter([(1, "EWR", 5), (2, "JFK", 2500), (2, "JFK", 2500)])
    assert flights.delivered() == flights.lake() + Counter([(3, "LGA", 7)])
    flights.verified()


def test_lines_are_parsed_by_the_schema_of_now(tmp_path: Path) -> None:
    fits = "fits: {sql: _corrupt_record IS NULL, on_violation: quarantine}"
    flights = Replayed(tmp_path, **{"delay INT": "delay INT, _corrupt_record STRING", STRICT.strip(): fits})
    flights.put("a.csv", "1,EWR,5", "x2,JFK,6", "3,JFK,7,too many")
    flights.deliver()
    text = (
        flights.file.read_text().replace("id INT", "id STRING").replace("SELECT id,", "SELECT CAST(ltrim('x', id) AS INT) AS id,")
    )
    flights.file.write_text(text)
    done = flights.replay("--yes")
    assert (done["records"], done["rows_out"], done["refused"]) == (2, 1, 1)
    assert flights.lake() == flights.delivered() == Counter([(1, "EWR", 5), (2, "JFK", 6)])
    [waiting] = [each for each in flights.listed() if not each["replayed"]]
    assert json.loads(waiting["row"])["_corrupt_record"] == "3,JFK,7,too many"
    flights.verified()


def test_what_cannot_be_replayed_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    flights = Replayed(tmp_path)
    flights.put("a.csv", *ROWS)
    flights.deliver()
    before = flights.run("penstock history flights.yaml --json").out
    given = flights.file.read_text()
    (tmp_path / "first_of_each.py").write_text(ONCE)
    for old, new, said in (
        ("sql: SELECT id, origin, delay FROM flights", "python: first_of_each:rows", "The query keeps state (Deduplicate)"),
        (
            LAKE,
            "  lake: {type: delta, path: ./delta, partition_by: [origin], write: overwrite_partitions}",
            "the place of others",
        ),
        ("delay INT", "delay DATE", "column delay is of type date and holds another value"),
    ):
        flights.file.write_text(given.replace(old, new).replace("sql: delay BETWEEN -120 AND 2000", "sql: id > 0"))
        assert said in flights.refused("--yes"), said
    flights.file.write_text(given)
    flights.run("penstock quarantine replay flights.yaml --yes --dry-run", code=2)
    assert "no record with the id" in flights.run("penstock quarantine replay flights.yaml --rows abc", code=2).err
    assert flights.run("penstock history flights.yaml --json").out == before


def test_a_replayed_row_of_a_key_is_warned_of(tmp_path: Path) -> None:
    flights = Replayed(tmp_path, **{"table: flights}": "table: flights, write: upsert, key: [id]}"})
    flights.put("a.csv", *ROWS)
    flights.deliver()
    assert flights.replay()["warnings"] == [
        "Sink warehouse: a replayed row replaces a newer one of its key. With `sequence_by` it would not."
    ]


def test_a_sink_that_is_added_later_puts_aside_what_it_cannot_take(tmp_path: Path) -> None:
    """A backfill stopped at the first such row."""
    flights = Replayed(tmp_path)
    for name in ("a", "b"):
        flights.put(f"{name}.csv", *ROWS)
        flights.deliver()
    later = "  later: {type: parquet, accounts: {EWR: ./later}, route: {column: origin}, unrouted: quarantine}\nquarantine:"
    flights.change(**{"quarantine: ./": f"{later} ./"})
    with pytest.raises(KilledError):
        flights.run("penstock backfill flights.yaml --sink later", faults="rename.move=kill@2")
    flights.run("penstock backfill flights.yaml --sink later --json")
    later_rows = pyarrow.dataset.dataset(tmp_path / "later", format="parquet").to_table().to_pylist()
    assert [row["id"] for row in later_rows] == [1, 1]
    assert Counter((each["sink"], each["batch"]) for each in flights.listed() if each["sink"] == "later") == Counter(
        [("later", 0), ("later", 1)]
    )
    rows = flights.verified()
    assert rows["sinks"]["later"] == {"ok": True, "rows_in": 4, "rows_out": 2, "aside": 2}
    flights.put("c.csv", "9,EWR,1")
    flights.deliver()
    flights.verified()
    with closing(sqlite3.connect(tmp_path / "flights.db")) as connection:
        assert connection.execute("SELECT count(*) FROM flights").fetchone() == (5,)


SINKS = """\
  topic: {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, value: json}}
  hook: {{type: http, url: "{hook}", receiver: idempotent}}
  elsewhere: {{type: postgres, url: "{postgres}", table: flights, invalid_rows: quarantine}}
  lakehouse: {{type: delta, path: ./delta}}
"""


def test_every_kind_of_sink_shows_a_replayed_record_once(tmp_path: Path) -> None:
    """A topic, an endpoint, a database on a server, a Delta table, each killed in the middle of its publication.

    PostgreSQL commits once before: what was decided is looked at again when the ledger is opened.
    """
    with endpoint() as (url, received):
        topic, database = create(unique("replayed"), 1), server("postgres").database(f"replay{next(_numbers)}")
        sinks = SINKS.format(bootstrap=server("kafka").bootstrap, topic=topic, hook=url, postgres=database)
        flights = Replayed(tmp_path, **{"quarantine: ./": f"{sinks}quarantine: ./"})
        flights.put("a.csv", *ROWS)
        flights.deliver()
        flights.change(**{STRICT: CORRECTED.rstrip("\n")})
        with pytest.raises(KilledError):
            flights.run(
                "penstock quarantine replay flights.yaml --yes",
                faults="kafka.commit=kill,http.request=kill,postgres.commit=kill@2",
            )
        assert flights.run("penstock verify flights.yaml --json").last["replaying"] is not None
        penstock("recover", "flights.yaml", directory=tmp_path, faults="kafka.commit=lost,http.request=lost,postgres.commit=lost")
        flights.replay("--yes")
        flights.put("b.csv", "5,JFK,1")
        flights.deliver()
        whole = Counter([(1, "EWR", 5), (3, "LGA", 7), (2, "JFK", 2500), (2, "JFK", 2500), (5, "JFK", 1)])
        found = [json.loads(line) for line in received.lines()]
        assert Counter((row["id"], row["origin"], row["delay"]) for row in found) == flights.delivered() == whole
        verified = flights.run("penstock verify flights.yaml --json").last
        assert verified["replaying"] is None
        assert {
            name: sink["rows_found"] for name, sink in verified["sinks"].items() if name in {"topic", "elsewhere", "lakehouse"}
        } == {
            "topic": 5,
            "elsewhere": 5,
            "lakehouse": 5,
        }
