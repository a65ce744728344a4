"""Rows whose columns a Delta or an Iceberg table cannot follow are refused before anything is added, and the remedies work."""

from collections import Counter

import pytest
from pyiceberg.types import LongType
from tests.attack.growing_lake import GrowingLake
from tests.attack.test_grown_lakes import BY_KEY, WAYS, growing, kind, rows_gain
from tests.unit.table_target import spark_schema

from penstock.errors import PenstockError, PublishFailed, Refused
from penstock.testing.conformance import PIPELINE

__all__ = ["growing", "kind"]

POINT = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}

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
    table.columns["point"] = POINT
    table.deliver((1, "a", {"x": 1}))
    table.columns["point"] = {**POINT, "fields": [*POINT["fields"], {**POINT["fields"][0], "name": "y"}]}
    with pytest.raises(Refused, match=r"has the type .* in column 'point'"):
        table.start()


def test_columns_of_every_type_are_added_as_a_new_table_has_them(growing):
    kinds = [
        *("boolean", "byte", "short", "integer", "float", "double", "binary", "date", "timestamp", "timestamp_ntz"),
        *("decimal(10,2)", {"type": "array", "elementType": "string", "containsNull": True}),
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        POINT,
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


def renamed(tmp_path):
    """An Iceberg table whose column `name` is called `title` by now: files have its old name, and readers find it by number."""
    table = GrowingLake(tmp_path, "iceberg", **BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    rename(table, name="title")
    return table


def rename(table, **names):
    with table.rig.table().update_schema() as update:
        for before, after in names.items():
            update.rename_column(before, after)


def titles(table):
    rows = table.rig.scan()
    return Counter(zip(rows["id"].to_pylist(), rows["title"].to_pylist(), strict=True))


def test_a_column_that_was_renamed_in_the_table_keeps_its_values(tmp_path):
    table = renamed(tmp_path)
    table.columns = {"id": "long", "title": "string"}
    table.deliver((1, "x"))
    assert titles(table) == Counter([(1, "x"), (2, "b")])
    assert table.verify().ok
    table.bench.close()


def test_a_decided_batch_waits_until_a_renamed_column_has_its_old_name_back(tmp_path):
    """Somebody renamed it and gave its name to a new one, while a batch was outstanding."""
    table = GrowingLake(tmp_path, "iceberg", **BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "x"), killed=True)
    rename(table, name="title")
    table.rig.add_column("name", "string")
    with pytest.raises(PublishFailed, match="decided without the column 'title', of which the table has values") as refused:
        table.recover()
    assert "give it its old name back, and another one to the column that has that name now" in refused.value.remedy
    assert titles(table) == Counter([(1, "a"), (2, "b")])
    rename(table, name="other")
    rename(table, title="name")
    table.recover()
    assert table.content("id", "name") == Counter([(1, "x"), (2, "b")])
    assert table.verify().ok
    table.bench.close()


@pytest.mark.parametrize("way", ["append", "upsert"])
def test_verify_sees_that_readers_find_values_no_more(tmp_path, way):
    """The column was removed and added again: it has another number than in the files."""
    table = GrowingLake(tmp_path, "iceberg", **WAYS[way])
    table.deliver((1, "a"), (2, "b"))
    assert table.verify().ok
    table.rig.renumber("name")
    assert table.rig.scan()["name"].to_pylist() == [None, None]
    [problem] = table.verify().problems
    assert "readers find NULL in its column 'name', whose number the table has no more" in problem.message
    table.bench.close()


@pytest.mark.parametrize("by_whom", ["us", "somebody"])
def test_a_column_that_took_the_name_of_a_renamed_one_gets_none_of_its_values(tmp_path, by_whom):
    table = renamed(tmp_path)
    if by_whom == "somebody":
        table.rig.add_column("name", "string")
    with pytest.raises(Refused, match="lack column 'title', with values of which"):
        table.deliver((1, "x"))
    assert titles(table) == Counter([(1, "a"), (2, "b")])
    table.bench.close()


@pytest.mark.parametrize("way", [way for way in WAYS if way != "overwrite"])
def test_columns_may_change_places(growing, way):
    """By key the marker counts rows that stay, with hashes for which the order counts."""
    table = growing(**WAYS[way])
    table.deliver((1, "a"), (2, "b"))
    table.columns = {"name": "string", "id": "long"}
    table.deliver(("x", 1))
    assert table.verify().ok
    table.deliver(("y", 2), ("z", 3))
    assert (3, "z") in table.content("id", "name")
    assert table.verify().ok


def test_fields_inside_of_a_column_keep_their_places(growing):
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "xy"]
    table = growing()
    table.columns["point"] = {"type": "struct", "fields": fields}
    table.deliver((1, "a", {"x": 1, "y": 2}))
    table.columns["point"] = {"type": "struct", "fields": fields[::-1]}
    with pytest.raises(Refused, match=r"has the type .* in column 'point'"):
        table.start()


CHANGES = {
    "a wider type": ("integer", 1, {}, lambda update: update.update_column("n", LongType())),
    "a field more": (POINT, {"x": 1}, BY_KEY, lambda update: update.add_column(("n", "y"), LongType())),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_iceberg_table_that_cannot_be_altered_back_is_put_back_as_the_error_says(tmp_path, what):
    kind, value, settings, change = CHANGES[what]
    table = GrowingLake(tmp_path, "iceberg", **settings)
    table.columns["n"] = kind
    table.deliver((1, "a", value))
    table.deliver((2, "b", value), killed=True)
    before = table.rig.table().metadata_location
    with table.rig.table().update_schema() as update:
        change(update)
    with pytest.raises(PublishFailed, match="is decided, but: ") as refused:
        table.recover()
    assert "by registering its metadata of then in the catalog" in refused.value.remedy
    table.rig.register(before)
    table.recover()
    assert table.content("id", "name") == Counter([(1, "a"), (2, "b")])
    table.bench.close()
