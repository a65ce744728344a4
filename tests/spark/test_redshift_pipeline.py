"""The command line from CSV files into directories and what stands in for Redshift: the page's own example, killed on the way."""

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.architecture.reading import ROOT
from tests.servers.fixtures import server
from tests.spark.page import Done, run, run_beside
from tests.spark.test_readme import feed, lake

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "redshift.md").read_text()
[PIPELINE], [QUERIES] = (re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for kind in ("yaml", "sql"))
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]
_numbers = itertools.count()


class Place:
    """A directory with the page's pipeline in it, and a database of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.running = directory, server("redshift")
        self.database = f"pipeline{next(_numbers)}"
        self.url = self.running.database(self.database)
        (directory / "redshift.yaml").write_text(PIPELINE)

    def run(self, command: str, *, faults: str = "") -> Done:
        environment = {"WAREHOUSE_URL": self.url}
        if faults:
            return run(self.directory, command, faults=faults, environment=environment)
        return run_beside(self.directory, command, environment=environment)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.running.direct(self.database), autocommit=True) as connection:
            return connection.execute(statement).fetchall()  # type: ignore[arg-type]

    def rows(self) -> "Counter[tuple[object, ...]]":
        return Counter(self.sql("SELECT id, origin, month, delay FROM flights"))


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.running.refused.clear()
    sent = feed(tmp_path / "incoming")
    killed = place.run("penstock run redshift.yaml", faults="redshift.commit=kill")
    assert killed.returncode != 0
    assert place.rows() == Counter()
    for command in COMMANDS:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert ("Not run against a live server" in " ".join(done.stdout.split())) is (" check " in command)
    assert place.rows() == sent
    assert lake(tmp_path / "lake") == sent
    for query in filter(str.strip, QUERIES.split(";\n")):
        assert place.sql(query)
    again = place.run("penstock run redshift.yaml --json")
    assert json.loads(again.stdout.splitlines()[-1])["sinks"]["warehouse"]["rows"] == 0
    assert place.rows() == sent
    assert place.running.refused == []


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    """In processes of their own: the driver leaves the socket open of a connection that is refused."""
    place = Place(tmp_path)
    feed(tmp_path / "incoming")
    wrong = place.running.url(place.database, password="geheimes-wort")
    for url, code, said in [
        (wrong, 1, "fails: password authentication failed"),
        (place.running.url("nobody"), 1, 'database "nobody" does not exist'),
        (place.running.url(place.database, port=1), 75, "does not answer"),
    ]:
        done = run(tmp_path, "penstock run redshift.yaml", environment={"WAREHOUSE_URL": url}, forked=True)
        assert done.returncode == code, done.stdout + done.stderr
        assert said in " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in done.stdout + done.stderr
