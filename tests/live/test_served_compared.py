"""`history` and `update_when` in databases with a staging table: against a replay in memory, and beside other sessions."""

import pytest
from tests.unit.compared_target import CHANGES, CONDITION, DELETING, HISTORY, IN_TIME, require_history, require_updates
from tests.unit.served_target import every_target
from tests.unit.table_target import ORDERED, spark_schema

target = pytest.fixture(every_target, params=["duckdb", "mysql", "postgres"])

UPDATES = {"schema": CHANGES, "write": "upsert", "key": ["id"], "update_when": CONDITION}


@pytest.mark.parametrize(
    "options", [{**HISTORY, **DELETING}, {**IN_TIME, **DELETING}, IN_TIME], ids=["stream", "time", "time-kept"]
)
def test_history_equals_a_replay_in_memory(target, options):
    require_history(target(**options), 7)


@pytest.mark.parametrize("more", [{}, DELETING, {"sequence_by": "version"}], ids=["plain", "deletes", "sequence"])
def test_updates_equal_a_replay_in_memory(target, more):
    require_updates(target(**UPDATES, **more), 7)


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz", "string"])
def test_times_of_each_type(target, kind):
    """A late one is put in its place, whatever the type, and `verify` counts it."""
    is_text = kind == "string"  # as a part of a key it is stored in no more than a page
    values = [value for value in ORDERED[kind] if not is_text or len(str(value)) < 50]
    table = target(**{**IN_TIME, "schema": spark_schema(id="integer", name="string", version=kind)})
    sink = table.sink()
    for number, picked in enumerate((values[::2], values[1::2], values)):
        table.put(sink, [(1, "a", value) for value in picked], batch_id=number)
    shown = table.sql("SELECT version, valid_to FROM t")
    assert len(shown) == len(values)
    assert sum(end is None for _, end in shown) == 1
    ends = dict(shown)
    latest = next(start for start, end in ends.items() if end is None)
    assert latest == max(ends) or kind == "string"
    assert table.verify(sink).ok
