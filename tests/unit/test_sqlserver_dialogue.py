"""The statements of the sqlserver sink, one after the other, are those that are recorded for people to review.

A change of a dialogue is a change of what SQL Server is asked: read it, and run it against a server if you can
(PENSTOCK_SQLSERVER_URL), before `PENSTOCK_RECORD=1 pytest tests/unit/test_sqlserver_dialogue.py` writes it anew.
"""

import os

import pytest
from tests.servers import tsql
from tests.unit.sqlserver_target import targets
from tests.unit.table_target import spark_schema

from penstock.testing.conformance import PIPELINE

target = pytest.fixture(targets)
RECORDS = os.environ.get("PENSTOCK_RECORD") == "1"
NARROW, WIDE = spark_schema(id="long", name="string"), spark_schema(id="long", name="string", amount="double", flag="boolean")
SEQUENCED = spark_schema(id="long", name="string", version="long")
WIDE_SEQUENCED = spark_schema(id="long", name="string", version="long", flag="boolean")
WAYS = {
    "append": {},
    "append one column": {"schema": spark_schema(id="long")},
    "replace": {},
    "upsert": {"key": ["id"]},
    "upsert or delete": {"key": ["id"], "deletes": True},
    "upsert or delete more": {"key": ["id"], "schema": WIDE, "deletes": True},
    "upsert the newest": {"key": ["id"], "schema": SEQUENCED, "sequence_by": "version"},
    "insert_if_absent": {"key": ["id"]},
    "upsert by two": {"key": ["id", "name"], "schema": WIDE},
    "upsert or delete by two": {"key": ["id", "name"], "schema": WIDE, "deletes": True},
    "upsert the newest by two": {"key": ["id", "name"], "schema": WIDE_SEQUENCED, "sequence_by": "version"},
    "insert_if_absent by two": {"key": ["id", "name"], "schema": WIDE},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_dialogue_is_the_recorded_one(target, way, monkeypatch):
    if RECORDS:
        monkeypatch.setattr(tsql, "known", _Everything)
    table = target(write=way.partition(" ")[0], **WAYS[way])
    made, shown = [], []
    third = 7 if "version" in table.columns else 0.5
    rows = [(1, "a", third, True)[: len(table.columns)]]
    acts = {
        "getting ready": lambda: made.append(table.sink()),
        "checking": lambda: made[0].require_schema_accepted(pipeline=PIPELINE, schema=table.rig.schema),
        "looking": lambda: _look(made[0]),
        "publishing": lambda: shown.append(table.put(made[0], rows, batch_id=0)),
        "publishing the same again": lambda: made[0].publish(shown[0].publication),
        "verifying": lambda: table.verify(made[0]),
    }
    said = [f"-- write: {way}"]
    for title, act in acts.items():
        tsql.WATCH.said.clear()
        act()
        said += ["", f"-- {title}", *tsql.WATCH.said]
    file, text = tsql.DIALOGUES / f"sqlserver_{way.replace(' ', '_')}.sql", "\n".join(said) + "\n"
    if RECORDS:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_the_dialogue_about_an_older_marker_is_the_recorded_one(target, monkeypatch):
    """The table of markers lacks `ledger_id`: who looks reads it as it is, and who prepares alters it."""
    if RECORDS:
        monkeypatch.setattr(tsql, "known", _Everything)
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    table.rig.make_markers_older()
    sink = table.rig.make()
    acts = {
        "looking": lambda: sink.high_water_mark("", pipeline=PIPELINE),
        "getting ready": lambda: sink.prepare(pipeline=PIPELINE, schema=None),
    }
    said = ["-- a marker of an older Penstock"]
    for title, act in acts.items():
        tsql.WATCH.said.clear()
        act()
        said += ["", f"-- {title}", *tsql.WATCH.said]
    sink.close()
    file, text = tsql.DIALOGUES / "sqlserver_older_marker.sql", "\n".join(said) + "\n"
    if RECORDS:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def _look(sink):
    return sink.check()


class _Everything:
    def __contains__(self, _):
        return True


def run(session, statements):
    for statement in statements:
        session.run(statement, None)


def test_the_order_is_watched_over(target):
    """What stands in for SQL Server refuses what would lose or double rows, or it would prove nothing."""
    table = target()
    table.sink()
    session = tsql.Session(table.rig.path)
    begin, commit = "BEGIN TRANSACTION", "COMMIT TRANSACTION WITH (DELAYED_DURABILITY = OFF)"
    insert = "INSERT INTO [dbo].[t] ([id], [name]) SELECT [id], [name] FROM #penstock_stage"
    for statements, said in [
        ([begin], "a transaction without XACT_ABORT"),
        ([insert], "outside of a transaction"),
        ([begin, insert], "before the marker is locked"),
        ([begin, "DROP DATABASE shop"], "unknown statement"),
    ]:
        with pytest.raises(tsql.pytds.ProgrammingError, match=said):
            run(session, statements)
        session._settings = "SET XACT_ABORT ON;"
    session._sqlite.execute("BEGIN")
    session.rows_in = {"[t]"}
    with pytest.raises(tsql.pytds.ProgrammingError, match="without their marker and batch"):
        session.run(commit, None)
    session.close()
    violations = table.rig.path.with_suffix(".violations")
    assert len(violations.read_text().splitlines()) == 5
    violations.unlink()
