"""Hostile values: each is delivered as it is, or its batch is refused before anything is decided; nothing in between."""

import datetime as dt
import functools
import operator
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.attack.places import KINDS, pipelines
from tests.attack.reading import expected
from tests.servers.kafka import records
from tests.unit.table_target import spark_schema

from penstock.errors import StageFailed
from penstock.spark.schema import arrow_schema

__all__ = ["pipelines"]

INF, NAN = float("inf"), float("nan")
MOST, LEAST = (1 << 63) - 1, -(1 << 63)
YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999

VALUES = {
    "flag": ("boolean", {"true": True, "false": False}),
    "i8": ("byte", {"least": -128, "most": 127}),
    "i16": ("short", {"least": -(1 << 15), "most": (1 << 15) - 1}),
    "i32": ("integer", {"least": -(1 << 31), "most": (1 << 31) - 1}),
    "i64": ("long", {"least": LEAST, "most": MOST, "no double": (1 << 53) + 1}),
    "f32": ("float", {"most": 3.4028234663852886e38, "least": 1.401298464324817e-45, "NaN": NAN, "inf": INF, "-inf": -INF}),
    "f64": (
        "double",
        {"most": 1.7976931348623157e308, "least": 5e-324, "tenth": 0.1 + 0.2, "-0": -0.0, "NaN": NAN, "inf": INF, "-inf": -INF},
    ),
    "dec": ("decimal(38,18)", {"most": Decimal("9" * 20 + "." + "9" * 18), "least": Decimal("-1E-18"), "0": Decimal(0)}),
    "whole": ("decimal(38,0)", {"most": Decimal("9" * 38), "negative": Decimal("-" + "9" * 38)}),
    "text": (
        "string",
        {
            "empty": "",
            "blank": " ",
            "blanks at the end": "a  ",
            "NUL": "a\0b",
            "NUL at the end": "a\0",
            "NULL": "NULL",
            "\\N": "\\N",
            "\\.": "\\.",
            "quotes": "'\"`''\\'",
            "SQL": "'); DROP TABLE t; --",
            "escapes": "\\x00\\u0000%s%(a)s{}$1?:a",
            "lines": "\r\n\t\x0b\x1a\x7f\x85\u2028",
            "csv": 'a,"b\n",c',
            "emoji": "\U0001f600\U000e0001\U0010ffff",
            "composed": "é e\u0301",
            "marks": "\ufeff\u202e\u200d",
            "no character": "\ufffe\uffff",
            "long": "x" * 200_000,
            "no UTF-8": b"a\xff",
            "cut": b"a\xf0\x9f\x98",
            "lone surrogate": b"\xed\xa0\x80",
            "overlong": b"\xc0\x80",
        },
    ),
    "raw": ("binary", {"empty": b"", "all": bytes(range(256)), "NUL": b"\0", "long": bytes(200_000)}),
    "day": (
        "date",
        {
            "year 1": -719_162,
            "year 9999": 2_932_896,
            "before year 1": -719_163,
            "year 10000": 2_932_897,
            "julian": -141_428,
            "least": -(1 << 31),
            "most": (1 << 31) - 1,
            "infinity": -(1 << 31) + 1,
        },
    ),
    "zoned": (
        "timestamp",
        {
            "year 1": YEAR_1,
            "year 9999": YEAR_9999,
            "before year 1": YEAR_1 - 1,
            "year 10000": YEAR_9999 + 1,
            "before 1970": -1,
            "2038": (1 << 31) * 1_000_000 + 1,
            "least": LEAST,
            "most": MOST,
            "infinity": -MOST,
        },
    ),
    "local": (
        "timestamp_ntz",
        {"year 1": YEAR_1, "year 9999": YEAR_9999, "year 10000": YEAR_9999 + 1, "gap": 1_364_695_200_000_000, "most": MOST},
    ),
    "clock": ("time(6)", {"midnight": 0, "last": 86_399_999_999_000}),
    "span": ("interval day to second", {"least": LEAST, "most": MOST, "month": 31 * 86_400_000_000, "-1": -1}),
    "list": (
        {"type": "array", "elementType": "string", "containsNull": True},
        {"empty": [], "NULL": [None], "texts": ["", "NULL", "\\", '"', ",{}", "\U0001f600"], "NUL": ["a\0b"]},
    ),
    "dates": (
        {"type": "array", "elementType": "date", "containsNull": True},
        {"most": [dt.date.max, None], "least": [dt.date.min]},
    ),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        {"empty": {}, "hostile": {"": MOST, "a.b": None, "'\"": LEAST}},
    ),
    "struct": (
        {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in [("a.b", "string")]],
        },
        {"NULL inside": {"a.b": None}, "text": {"a.b": "\\u0000'"}},
    ),
}
COLUMNS = {"id": "long", **{name: kind for name, (kind, _) in VALUES.items()}}
SCHEMA = arrow_schema(spark_schema(**COLUMNS))

NO_UNICODE = {f"text {name}" for name in ("no UTF-8", "cut", "lone surrogate", "overlong")}
BEYOND_YEAR_9999 = {
    *("day before year 1", "day year 10000", "day least", "day most", "day infinity"),
    *("zoned before year 1", "zoned year 10000", "zoned least", "zoned most", "zoned infinity", "local year 10000", "local most"),
}
REFUSED = {
    "parquet": NO_UNICODE,
    "sqlite": NO_UNICODE | BEYOND_YEAR_9999,
    "duckdb": NO_UNICODE | {"day most", "day infinity", "day least", "zoned least", "zoned most", "zoned infinity", "local most"},
    "postgres": NO_UNICODE
    | {"text NUL", "text NUL at the end", "day least", "day most", "day infinity", "zoned least", "zoned infinity"},
    "cassandra": NO_UNICODE
    | {case for case in BEYOND_YEAR_9999 if not case.startswith("day ")}
    | {"zoned year 9999", "zoned before 1970", "zoned 2038", "local year 9999"},
    "mysql": NO_UNICODE | BEYOND_YEAR_9999 | {f"{name} {value}" for name in ("f32", "f64") for value in ("NaN", "inf", "-inf")},
}
"""By the name of the column and the value."""


def row(number, name, value):
    """A row that is NULL but for this value."""
    columns = [pa.nulls(1, field.type) for field in SCHEMA]
    columns[0] = pa.array([number])
    columns[SCHEMA.get_field_index(name)] = column(SCHEMA.field(name).type, value)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def column(kind, value):
    if isinstance(value, bytes):
        return pa.array([value], pa.binary()).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array([value], pa.int32() if pa.types.is_date(kind) else pa.int64()).view(kind)
    return pa.array([list(value.items()) if pa.types.is_map(kind) else value], kind)


@pytest.mark.parametrize(
    ("kind", "inline_limit_bytes"),
    [pytest.param(kind, limit, id=f"{kind}-{way}") for kind in KINDS for way, limit in (("inline", 100_000), ("spooled", 0))]
    + [pytest.param("cassandra", 0, id="cassandra")],
)
def test_every_value_is_delivered_as_it_is_or_refused_before_the_decision(pipelines, kind, inline_limit_bytes):
    pipeline = pipelines(kind, columns=COLUMNS, inline_limit_bytes=inline_limit_bytes)
    cases = {f"{name} {label}": (name, value) for name, (_, values) in VALUES.items() for label, value in values.items()}
    rows = {case: row(number, *of) for number, (case, of) in enumerate(cases.items())}
    assert REFUSED[kind] <= set(cases)
    with pipeline.staging() as stage:
        for case in sorted(REFUSED[kind]):
            print(case)
            with pytest.raises(StageFailed):
                stage(rows[case])
    taken = [
        pa.concat_batches([rows[case] for case, (name, _) in cases.items() if name == column and case not in REFUSED[kind]])
        for column in VALUES
    ]
    pipeline.run(*taken)
    assert pipeline.content() == functools.reduce(operator.add, map(expected, taken))
    assert pipeline.verify().ok


def test_texts_and_bytes_reach_a_topic_as_they_are(pipelines):
    """Keys, values and headers; a reader of Kafka has no texts but bytes."""
    pipeline = pipelines("kafka", columns={"value": "string", "key": "string"}, inline_limit_bytes=0)
    texts = {label: text for label, text in VALUES["text"][1].items() if label != "long"}
    with pipeline.staging() as stage:
        for label in [label for label, text in texts.items() if isinstance(text, bytes)]:
            print(label)
            with pytest.raises(StageFailed):
                stage(pa.record_batch({"value": pa.array([texts[label]]).view(pa.string()), "key": pa.array(["a"])}))
    taken = [text for text in texts.values() if isinstance(text, str)]
    pipeline.run([(text, label) for label, text in texts.items() if text in taken], [(None, text) for text in taken])
    found = records(pipeline.rig.bootstrap, pipeline.rig.topic)
    assert Counter((message.value(), message.key()) for message in found) == Counter(
        [(text.encode(), label.encode()) for label, text in texts.items() if text in taken]
        + [(None, text.encode()) for text in taken]
    )
    assert pipeline.verify().ok
