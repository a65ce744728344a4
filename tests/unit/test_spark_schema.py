"""`arrow_schema` gives exactly what pyspark gives its Python workers."""

import inspect
import warnings

import pytest

from penstock.errors import Usage
from penstock.spark.schema import arrow_schema

types = pytest.importorskip("pyspark.sql.types")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.pandas.types import to_arrow_schema

PLAIN = [
    types.BooleanType(),
    types.ByteType(),
    types.ShortType(),
    types.IntegerType(),
    types.LongType(),
    types.FloatType(),
    types.DoubleType(),
    types.DecimalType(38, 18),
    types.DecimalType(10, 0),
    types.DecimalType(5, -2),
    types.StringType(),
    types.StringType("UNICODE_CI"),
    types.BinaryType(),
    types.DateType(),
    types.TimestampType(),
    types.TimestampNTZType(),
    types.DayTimeIntervalType(),
    types.DayTimeIntervalType(1, 2),
    types.DayTimeIntervalType(0, 0),
    types.VariantType(),
    *([types.TimeType(6)] if hasattr(types, "TimeType") else []),  # since Spark 4.1
    VectorUDT(),
]


NAMES_ZONE = "timezone" in inspect.signature(to_arrow_schema).parameters  # Spark 4.0 knows UTC only


def same(struct, timezone="UTC"):
    ours = arrow_schema(struct.json(), timezone=timezone)
    theirs = to_arrow_schema(struct, **({"timezone": timezone} if NAMES_ZONE else {}))
    assert ours.equals(theirs, check_metadata=True), f"{ours}\n!=\n{theirs}"


@pytest.mark.parametrize("kind", PLAIN, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_is_mapped_as_pyspark_maps_it(kind, nullable):
    same(types.StructType([types.StructField("c", kind, nullable)]))


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_nested_types_keep_their_nullability(kind):
    inner = types.StructType(
        [types.StructField("a b", kind, nullable=False), types.StructField("ü", types.ArrayType(kind, containsNull=False))]
    )
    same(
        types.StructType()
        .add("list", types.ArrayType(types.ArrayType(kind, containsNull=True), containsNull=False))
        .add("map", types.MapType(types.StringType(), inner, valueContainsNull=False))
        .add("struct", inner, nullable=False)
    )


def test_void_is_nullable_whatever_it_says():
    struct = types.StructType().add("v", types.ArrayType(types.NullType(), containsNull=False), nullable=False)
    assert arrow_schema(struct.json()).field("v").type.value_field.nullable
    same(types.StructType().add("v", types.NullType()))


@pytest.mark.parametrize("kind", [types.CharType(3), types.VarcharType(30)], ids=str)
def test_strings_of_limited_length_are_strings(kind):
    assert arrow_schema(types.StructType().add("s", kind).json()).field("s").type == "string"


def test_metadata_and_time_zone_are_kept():
    column = types.StructField("t", types.TimestampType(), metadata={"comment": "when", "n": 1} if NAMES_ZONE else {})
    same(types.StructType([column]), timezone="Europe/Berlin" if NAMES_ZONE else "UTC")


def test_a_schema_without_columns_is_one():
    same(types.StructType([]))


@pytest.mark.parametrize(
    "kind",
    [
        types.YearMonthIntervalType(),
        types.CalendarIntervalType(),
        *([types.GeometryType(4326)] if hasattr(types, "GeometryType") else []),
    ],
    ids=str,
)
def test_a_type_arrow_cannot_carry_is_refused_by_name(kind):
    struct = types.StructType().add("outer", types.StructType().add("inner", kind))
    with pytest.raises(Usage, match=r"'outer\.inner'.*Cast it"):
        arrow_schema(struct.json())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '"long"', '{"fields": [{}]}', '{"fields": [{"name": "a", "type": {"type": "?"}}]}']
)
def test_other_text_is_no_schema(text):
    with pytest.raises(Usage, match="Expected the JSON of a Spark schema"):
        arrow_schema(text)
