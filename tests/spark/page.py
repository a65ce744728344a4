"""A page of docs/howto, followed as it stands: its pipeline file, its commands in a directory, its queries in a database."""

import json
import re
import shlex
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.architecture.reading import ROOT
from tests.crash import shared_java
from tests.crash.commandline import penstock
from tests.spark.test_readme import lake

NOTHING_SECRET = ("s3cret", "of%3Fthe", "of?the")
Rows = Sequence[tuple[object, ...]]
Done = subprocess.CompletedProcess[str]


class Page:
    """What one page shows."""

    def __init__(self, name: str, *, folder: str = "docs/howto") -> None:
        self.name, self.text = name, (ROOT / folder / f"{name}.md").read_text()
        self.commands = [line.split("#")[0] for line in re.findall(r"^penstock .*$", self.text, re.MULTILINE)]

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)


def run(
    directory: Path, command: str, *, faults: str = "", environment: Mapping[str, str] | None = None, forked: bool = False
) -> Done:
    """One command in a process of its own, which must not print a password; `forked` where another test of the page's is not."""
    given = {**(environment or {}), "PENSTOCK_FAULTS": faults}
    return without_secrets(shared_java.run(["-m", *shlex.split(command)], directory=directory, more=given, forked=forked))


def killed_at(directory: Path, command: str, points: Sequence[str]) -> Sequence[int]:
    """The exit codes of the command run again and again, each time with a SIGKILL at the next of the fault points.

    Where tasks reach the point, it is a Python worker that is killed, and the run fails.
    """
    return [run(directory, command, faults=f"{point}=kill", forked=True).returncode for point in points]


def run_beside(directory: Path, command: str, *, environment: Mapping[str, str] | None = None) -> Done:
    """As `run`, in this process and in its Spark session: a page needs one real process, which is the one that is killed."""
    words = shlex.split(command)
    assert words[0] == "penstock"
    ended = penstock(*words[1:], directory=directory, environment=environment)
    return without_secrets(Done(words, ended.code, ended.out, ended.err))


def without_secrets(done: Done) -> Done:
    """`done`, which printed no password."""
    assert not [secret for secret in NOTHING_SECRET if secret in done.stdout + done.stderr]
    return done


class Place:
    """A directory with the page's pipeline in it, of whose sinks `sink` is a database with a table of flights."""

    page: Page
    sink: str

    def __init__(self, directory: Path, *, environment: Mapping[str, str] | None = None, more: str = "", **changes: str) -> None:
        self.directory, self.environment = directory, environment or {}
        self.file = directory / f"{self.page.name}.yaml"
        text = self.page.blocks("yaml")[0]
        for old, new in changes.items():
            text = text.replace(f"{old}:", f"{new}\n    {old}:")
        self.file.write_text(text + more)

    def run(self, command: str, *, faults: str = "", forked: bool = False, **environment: str) -> Done:
        """Beside the test, or with `faults` in a process: `forked` where another test of the page's is not."""
        given = {**self.environment, **environment}
        if faults:
            return run(self.directory, command, faults=faults, environment=given, forked=forked)
        return run_beside(self.directory, command, environment=given)

    def query(self, statement: str) -> Rows:
        raise NotImplementedError

    def rows(self) -> "Counter[tuple[object, ...]]":
        return Counter(self.query("SELECT id, origin, month, delay FROM flights"))

    def damage(self) -> None:
        self.query("UPDATE flights SET delay = 1000 WHERE id = 1")

    def assert_delivered_by_the_page(self, sent: "Counter[tuple[object, ...]]", *, queries: str) -> None:
        """Its commands deliver what was `sent`, its queries find something, and a further run has nothing to do."""
        self.assert_done(self.file.name)
        assert self.rows() == lake(self.directory / "lake") == sent
        self.assert_answered(queries)
        again = self.run(f"penstock run {self.file.name} --json")
        assert json.loads(again.stdout.splitlines()[-1])["sinks"][self.sink]["rows"] == 0
        assert self.rows() == sent

    def assert_done(self, file: str) -> None:
        """The page's commands end well, but for those of another pipeline file than `file`."""
        for command in self.page.commands:
            if ".yaml" in command and file not in command:
                continue
            done = self.run(command)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def assert_answered(self, queries: str) -> None:
        for query in filter(str.strip, queries.split(";\n")):
            assert self.query(query), query

    def assert_damage_is_noticed(self) -> None:
        self.damage()
        verified = self.run(f"penstock verify {self.file.name} --json")
        assert verified.returncode == 5
        assert not json.loads(verified.stdout)["sinks"][self.sink]["ok"]


class SqlitePlace(Place):
    """Whose sink is a table of `warehouse.db`."""

    def query(self, statement: str) -> Rows:
        connection = sqlite3.connect(self.directory / "warehouse.db")
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()


def assert_told(done: Done, code: int, *said: str) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert [part for part in said if part not in " ".join(text.split())] == []


def write_changes(directory: Path, pipeline: str) -> None:
    """Write `changes.yaml`, and two files of changes, which leave gate A9 for 1 and C4 for 3."""
    (directory / "changes.yaml").write_text(pipeline)
    (directory / "changes").mkdir()
    for name, rows in {
        "1.csv": ["i,1,A1,10", "i,2,B2,20", "u,1,A9,15", ",3,C3,30"],
        "2.csv": ["d,2,,", "d,7,,", "d,3,C3,30", "i,3,C4,35"],
    }.items():
        (directory / "changes" / name).write_text("\n".join(rows) + "\n")
