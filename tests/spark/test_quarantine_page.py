"""The page about rules and the quarantine, command by command."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.page import Page
from tests.spark.test_rules import Flights

PAGE = Page("quarantine")

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_the_page_works_and_each_row_is_where_the_rules_send_it(tmp_path: Path) -> None:
    flights = Flights(tmp_path, text=PAGE.blocks("yaml")[0])
    file = flights.put("a b.csv", "1,EWR,5", "2,XXX,5", "3,JFK,9999", "4,,1", "5,LGA,", "6,JFK,9999")
    for command in PAGE.commands[:-1]:
        done = flights.run(command)
        if command.startswith("penstock history"):
            assert "from_new_york" in done.out
    assert flights.delivered() == Counter([("EWR", 5)])
    held = flights.aside()
    assert Counter((row["rule"], row["row"]) for row in held) == Counter([
        ("delay", '{"id":3,"origin":"JFK","delay":9999}'),
        ("delay", '{"id":5,"origin":"LGA","delay":null}'),
        ("delay", '{"id":6,"origin":"JFK","delay":9999}'),
    ])  # fmt: skip
    assert {row["file"] for row in held} == {file.as_uri()}
    assert {row["error"] for row in held} == {"expect.delay is not met: delay BETWEEN -120 AND 2000"}
    [decided] = json.loads(flights.run("penstock history flights.yaml --batch 0 --json").out)
    assert decided["dropped"] == {"flights": {"from_new_york": 2}}
    assert (decided["rows_out"], decided["sinks"]["quarantine"]["rows"]) == (1, 3)
    listed = json.loads(flights.run("penstock quarantine list flights.yaml --json").out)
    shown = flights.run(f"penstock quarantine show flights.yaml --id {listed[0]['id']}")
    assert "delay BETWEEN -120 AND 2000" in shown.out
    flights.put("b.csv", "7,XXX,1", "8,EWR,2")
    last = json.loads(flights.run("penstock run flights.yaml --json").out.splitlines()[-1])
    assert (last["rows_out"], last["dropped"]) == (1, {"flights": {"from_new_york": 1}})
    assert json.loads(flights.run("penstock status flights.yaml --json").out)["dropped"] == {"flights": {"from_new_york": 3}}
    assert flights.run("penstock verify flights.yaml")


def test_lines_that_do_not_fit_the_schema_are_put_aside(tmp_path: Path) -> None:
    schema, expect, fits = PAGE.blocks("yaml")[1].splitlines()
    lines = PAGE.blocks("yaml")[0].splitlines()
    rules = range(lines.index(expect) + 1, lines.index("transform:"))
    kept = [schema if "schema:" in line else line for place, line in enumerate(lines) if place not in rules]
    kept.insert(kept.index(expect) + 1, fits)
    flights = Flights(tmp_path, text="\n".join(kept))
    flights.put("a.csv", "1,EWR,5", "x,JFK,6", "3,LGA,7,too many")
    flights.run("penstock run flights.yaml")
    assert flights.delivered() == Counter([("EWR", 5)])
    assert Counter(json.loads(row["row"])["_corrupt_record"] for row in flights.aside()) == Counter(
        ["x,JFK,6", "3,LGA,7,too many"]
    )
