"""Rows whose columns a Delta or an Iceberg table cannot follow are refused before anything is added, and the remedies work."""

from collections import Counter

import pytest
from tests.attack.growing_lake import GrowingLake
from tests.attack.test_grown_lakes import BY_KEY, growing, kind, rows_gain
from tests.unit.table_target import spark_schema

from penstock.errors import PenstockError, Refused
from penstock.testing.conformance import PIPELINE

__all__ = ["growing", "kind"]


REFUSED = {
    "in the key": ({"code": "long"}, {"write": "upsert", "key": ["id", "code"]}, "has no column 'code'", {"key": ["id"]}, {}),
    "a partition": (
        {"code": "long"},
        {"partition_by": ["code"]},
        "is partitioned by nothing, and partition_by is code",
        {"partition_by": []},
        {},
    ),
    "another type besides": (
        {"id": "string", "code": "long"},
        {},
        "has the type long in column 'id', and the rows have string",
        {},
        {"id": "long"},
    ),
    "a narrower type": (
        {"id": "integer", "code": "long"},
        {},
        r"has the type long in column 'id', and the rows have int",
        {},
        {"id": "long"},
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_added(growing, what):
    """And what the remedy names works."""
    columns, settings, message, right_settings, right_columns = REFUSED[what]
    before = {"write": "upsert", "key": ["id"]} if "key" in settings else {}
    table = growing(**before)
    table.deliver((1, "a"))
    table.columns |= columns
    table.settings |= settings
    with pytest.raises(PenstockError, match=message) as refused:
        table.start()
    assert refused.value.remedy
    assert table.columns_there() == ["id", "name"]
    table.settings |= right_settings
    table.columns |= right_columns
    table.deliver((2, "b", 7)[: len(table.columns)])
    assert table.content("id", "name") == Counter([(1, "a"), (2, "b")])
    assert table.verify().ok


def test_a_column_under_another_name_is_refused(growing):
    table = growing()
    table.deliver((1, "a"))
    table.columns = {"id": "long", "title": "string"}
    with pytest.raises(Refused, match="lack column 'name'"):
        table.start()
    assert table.columns_there() == ["id", "name"]


def test_a_column_in_other_letters_is_refused_and_the_remedy_works(growing):
    table = growing()
    table.deliver((1, "a"))
    table.columns = {"id": "long", "NAME": "string"}
    with pytest.raises(Refused, match="has no column 'NAME', which the rows have, but 'name'") as refused:
        table.start()
    assert "Name it 'name' in the transform" in refused.value.remedy
    table.columns = {"id": "long", "name": "string"}
    table.deliver((2, "b"))
    assert table.content("id", "name") == Counter([(1, "a"), (2, "b")])


def test_columns_that_are_all_new_are_another_table(growing):
    table = growing()
    table.deliver((1, "a"))
    table.columns = {"code": "long", "title": "string"}
    with pytest.raises(Refused, match="has no column 'code'"):
        table.start()
    assert table.columns_there() == ["id", "name"]


def test_a_field_inside_of_a_column_is_another_type(growing):
    """As in tables of databases: nothing but whole columns is added."""
    table = growing()
    point = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    table.columns["point"] = point
    table.deliver((1, "a", {"x": 1}))
    table.columns["point"] = {**point, "fields": [*point["fields"], {**point["fields"][0], "name": "y"}]}
    with pytest.raises(Refused, match=r"has the type .* in column 'point'"):
        table.start()


def test_columns_of_every_type_are_added_as_a_new_table_has_them(growing):
    kinds = [
        *("boolean", "byte", "short", "integer", "float", "double", "binary", "date", "timestamp", "timestamp_ntz"),
        *("decimal(10,2)", {"type": "array", "elementType": "string", "containsNull": True}),
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]},
    ]
    table = growing()
    table.deliver((1, "a"))
    rows_gain(table, **{f"more{number}": kind for number, kind in enumerate(kinds)})
    table.deliver((2, "b", *[None] * len(kinds)))
    table.start()  # it fits from now on
    assert table.columns_there() == list(table.columns)
    assert table.content("id", "name", "more0", "more13") == Counter([(1, "a", None, None), (2, "b", None, None)])
    assert table.verify().ok


@pytest.mark.parametrize("kind_of", ["void", "time(6)"])
def test_types_that_the_format_lacks_are_refused(growing, kind_of):
    table = growing()
    table.deliver((1, "a"))
    rows_gain(table, more=kind_of)
    with pytest.raises(PenstockError, match="more"):
        table.start()
    assert table.columns_there() == ["id", "name"]


def test_a_look_changes_nothing_and_says_whether_a_start_would_work(growing):
    table = growing()
    table.deliver((1, "a"))
    sink = table.rig.make(**table.settings)
    try:
        sink.require_schema_accepted(pipeline=PIPELINE, schema=spark_schema(id="long", name="string", more="long"))
        with pytest.raises(Refused):
            sink.require_schema_accepted(pipeline=PIPELINE, schema=spark_schema(id="string", name="string", more="long"))
    finally:
        sink.close()
    assert table.columns_there() == ["id", "name"]


def test_without_it_a_start_is_refused_and_the_remedy_works(growing):
    table = growing(schema_changes="fail")
    table.deliver((1, "a"))
    rows_gain(table, more="long")
    with pytest.raises(Refused, match="has no column 'more', which the rows have") as refused:
        table.start()
    assert "Set schema_changes: add" in refused.value.remedy
    table.settings["schema_changes"] = "add"
    table.deliver((2, "b", 7))
    assert table.content("id", "more") == Counter([(1, None), (2, 7)])


def test_rows_that_others_compacted_before_or_after_are_proved(tmp_path):
    """Compaction writes files without Penstock's footer; before, they lack the column, and after, all of them have it."""
    table = GrowingLake(tmp_path, "delta")
    for number in range(3):
        table.deliver((number, "a"))
    assert table.rig.table().optimize.compact()["numFilesAdded"] == 1
    rows_gain(table, more="long")
    table.start()
    table.deliver((7, "b", 8))
    assert table.verify().ok
    assert table.rig.table().optimize.compact()["numFilesAdded"] == 1
    assert table.verify().ok
    table.settings |= BY_KEY
    table.deliver((1, "x", 9))
    assert table.content("id", "name", "more") == Counter([(0, "a", None), (1, "x", 9), (2, "a", None), (7, "b", 8)])
    assert table.verify().ok
    table.bench.close()


def test_a_column_that_was_renamed_in_the_table_loses_no_value(tmp_path):
    """Files have it under its old name, under which Iceberg's readers find it by number; Penstock reads by name."""
    table = GrowingLake(tmp_path, "iceberg", **BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    with table.rig.table().update_schema() as update:
        update.rename_column("name", "title")
    table.columns = {"id": "long", "title": "string"}
    with pytest.raises(PenstockError, match="expected title among them"):
        table.deliver((1, "x"))
    assert Counter(table.rig.scan()["title"].to_pylist()) == Counter(["a", "b"])
    table.bench.close()
