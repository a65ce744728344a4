"""Mistakes in `history` and `update_when`, with what is said of them; and what a good file gives."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SOURCES, TOP, lake, mistake

from penstock.spec.load import load

BY_ID = ("write: upsert", "key: [id]")
COMPARED = "Leave it out, or write into PostgreSQL, MySQL, SQLite, DuckDB, Delta or Iceberg."
LANGUAGE = (
    "Write comparisons of old.column, new.column and literals with AND, OR, NOT, IS NULL and IS DISTINCT FROM, such as "
    "`new.version > old.version`."
)


@pytest.mark.parametrize(
    ("sinks", "message", "remedy"),
    [
        (
            lake("type: sqlite", "url: sqlite:///x.db", "table: t", "history: true"),
            "f.yaml:10: sinks.lake.history is given, but write is append.",
            "Set write: upsert, with a key, or leave it out.",
        ),
        (
            lake("type: sqlite", "url: sqlite:///x.db", "table: t", *BY_ID, "history: true", "update_when: new.a > old.a"),
            "f.yaml:13: sinks.lake.update_when is given, and history as well, which replaces no row.",
            "Leave it out.",
        ),
        (
            lake("type: sqlite", "url: sqlite:///x.db", "table: t", *BY_ID, "history: true", "schema_changes: widen"),
            "f.yaml:13: sinks.lake.schema_changes is widen, and history is given: versions of before stay as they were counted.",
            "Write add, or give the sink another table when a type is to become wider.",
        ),
        (
            lake("type: sqlite", "url: sqlite:///x.db", "table: t", *BY_ID, "update_when: new.a ! old.a"),
            "f.yaml:12: sinks.lake.update_when is 'new.a ! old.a', in which '!' is not understood.",
            LANGUAGE,
        ),
        (
            lake("type: redshift", "url: redshift://host/db", "table: t", *BY_ID, "history: true"),
            "f.yaml:12: sinks.lake.history is given, but that was not run against a live server of this kind yet.",
            COMPARED,
        ),
        (
            lake("type: cassandra", "url: cassandra://host/shop", "table: t", "key: [id]", "update_when: new.a > old.a"),
            "f.yaml:11: sinks.lake.update_when is given, but Cassandra cannot compare rows and write as one step.",
            COMPARED,
        ),
        (
            lake("type: dbapi", "driver: sqlite3", "table: t", "history: true"),
            "f.yaml:10: sinks.lake.history is given, but behind any driver nothing tells how rows are locked.",
            COMPARED,
        ),
        (
            lake("type: sqlite", "url: sqlite:///x.db", "table: t", *BY_ID, "update_when: new.a > ${LEAST} AND old.a > 1"),
            "f.yaml:12: sinks.lake.update_when holds a value of the environment, which every decision would record.",
            "Compare a column of the rows, which the transform computes.",
        ),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, message: str, remedy: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAST", "17")
    error = mistake(tmp_path, TOP + SOURCES + sinks)
    assert (error.message, error.remedy) == (message, remedy)


def test_history_goes_with_a_sequence_and_deletions(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        TOP + SOURCES + lake("type: delta", "path: ./t", *BY_ID, "history: true", "sequence_by: at", "delete_when: gone")
    )
    settings = load(tmp_path / "f.yaml").sinks["lake"]
    assert (settings.history, settings.sequence_by, settings.delete_when) == (True, "at", "gone")
