"""What of a pipeline's rows makes a record of Kafka: the settings, the columns that Spark computes, and what is refused."""

import json

import pytest
from tests.unit.table_target import spark_schema

from penstock.errors import Usage
from penstock.sink.kafka.records import RecordColumns
from penstock.sink.kafka.target import require_columns
from penstock.spark.schema import arrow_schema
from penstock.spec.kafka import Kafka

ROWS = spark_schema(**{"id": "long", "a`b": "string", "raw": "binary", "place": "integer"})
NESTED = json.dumps({"type": "struct", "fields": [{"name": "tags", "type": {"type": "array", "elementType": "string"}}]})


def made(**settings):
    return Kafka(bootstrap="a:9092", topic="t", **settings)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("json", ((), None)),
        ({"json": "all"}, ((), None)),
        ({"json": ["b", "a"]}, (("b", "a"), None)),
        ({"column": "raw"}, (None, "raw")),
    ],
)
def test_a_value_is_said_in_few_words(value, found):
    said = made(value=value).value
    assert (said.json_of, said.column) == found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"value": "jsn"}, "value should be json, or say how, found the text 'jsn'"),
        ({"value": {"json": []}}, "value.json should name at least one column"),
        ({"value": {}}, "value should have json or column"),
        ({"value": {"json": ["a"], "column": "a"}}, "value should have json or column"),
        ({"value": {"jsno": ["a"]}}, "Did you mean json"),
        ({"value": "json", "delete_when": "gone"}, "delete_when is given, but the records have no key"),
        ({"key": "id"}, "key goes with `value`, which is missing"),
        ({"value": "json", "topics": ["other"]}, "go with a column `topic` of the rows"),
    ],
)
def test_what_cannot_be_said_is_refused(settings, said):
    with pytest.raises(Usage, match=said):
        made(**settings)


def test_columns_become_a_record_in_the_order_of_records():
    own = RecordColumns(partition="place", json=("id", "a`b"), key="raw").own_rows(ROWS, sink="out")
    assert list(own.columns) == ["key", "value", "partition"]
    assert own.columns["key"] == "`raw`"
    assert own.columns["value"].startswith("to_json(struct(`id`, `a``b`), map('timeZone', 'UTC', ")
    require_columns(arrow_schema(own.schema))


def test_all_columns_are_those_of_the_rows_and_plain_values_become_text():
    own = RecordColumns(json=(), key="id").own_rows(ROWS, sink="out")
    assert "struct(`id`, `a``b`, `raw`, `place`)" in own.columns["value"]
    assert own.columns["key"] == "CAST(`id` AS STRING)"


@pytest.mark.parametrize(
    ("shape", "rows", "said"),
    [
        (
            RecordColumns(json=(), key="name"),
            ROWS,
            "takes a column 'name' for its records, and the rows have id, a`b, raw, place",
        ),
        (RecordColumns(json=("id", "no")), ROWS, "takes a column 'no'"),
        (RecordColumns(value="tags"), NESTED, "takes column 'tags' as it is, and its values are nested"),
    ],
)
def test_columns_that_make_no_record_are_told(shape, rows, said):
    with pytest.raises(Usage, match=said):
        shape.own_rows(rows, sink="out")
