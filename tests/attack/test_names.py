"""Hostile names of columns, tables and partitions: rows are delivered under exactly these, or refused before the decision."""

import datetime as dt
from collections import Counter

import duckdb
import pytest
from tests.attack.pipeline import Pipeline
from tests.attack.places import COLUMNS, KINDS, TABLES, pipelines
from tests.attack.reading import DIALECTS, expected, read

from penstock.errors import StageFailed

__all__ = ["pipelines"]

LONG = "n" * 63
NAMES = [
    *("select", "ORDER", "Group By", "user", "rowid", "oid", "ctid", "key", "values", "penstock_marker", "penstock_row"),
    *('a"b', "a'b", "a`b", "a.b", "a b", " a", "a ", "a;--", "a%sb", "%(a)s", "{}", "$1", ":a", "?", "a\\b", "a/b", "a[b]", "*"),
    *("a,b", "a=b", "(a)", "é", "e\u0301", "\U0001f600", "\u202ea", "1", "NULL", "a\nb", "a\tb", "_a", "A"),
    *(LONG, LONG + "m", "é" * 32, "n" * 64, "n" * 65, "n" * 300),
]
REFUSED = {
    "parquet": set(),
    "sqlite": set(),
    "duckdb": set(),
    "postgres": {"ctid", LONG + "m", "é" * 32, "n" * 64, "n" * 65, "n" * 300},
    "mysql": {"a ", "\U0001f600", "n" * 65, "n" * 300},
}
CLASHES = [("b", "B"), ("ä", "Ä"), ("ß", "ss"), ("i", "\u0131"), ("ö", "o\u0308"), ("e", "é"), ("c", "c\u200d")]
"""Names that some database takes for one."""


@pytest.mark.parametrize("kind", KINDS)
def test_columns_keep_their_names_or_are_refused(pipelines, kind):
    """Each refused name alone, and all others side by side in one table."""
    for name in REFUSED[kind]:
        assert pipelines(kind, columns={"id": "long", name: "string"}).offer([(1, name)]) is not None, name
    taken = [name for name in NAMES if name not in REFUSED[kind]]
    pipeline = pipelines(kind, columns={"id": "long", **dict.fromkeys(taken, "string")})
    rows = pipeline.batch([(number, *(f"{number} {name}" for name in taken)) for number in range(3)])
    pipeline.run(rows, rows)
    assert pipeline.content() == expected(rows) + expected(rows)
    assert pipeline.verify().ok


@pytest.mark.parametrize("names", CLASHES, ids=ascii)
@pytest.mark.parametrize("kind", KINDS)
def test_names_that_a_database_takes_for_one_are_kept_apart_or_refused(pipelines, kind, names):
    pipeline = pipelines(kind, columns={"id": "long", **dict.fromkeys(names, "string")})
    rows = pipeline.batch([(1, *names)])
    if pipeline.offer(rows) is None:
        assert pipeline.content() == expected(rows)
        assert pipeline.verify().ok


TABLE_NAMES = ["select", 'a"b', "a'b", "a`b", "a b", "a.b", "%s", "\U0001f600", "a;--", "a\\b", "A", LONG, LONG + "m", "n" * 300]
NO_TABLE = {"postgres": {LONG + "m", "n" * 300}, "mysql": {"a.b", "\U0001f600", "n" * 300}}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_has_its_name_or_is_refused(pipelines, tmp_path, kind):
    rig = pipelines(kind).rig
    for number, name in enumerate(TABLE_NAMES):
        quoted = DIALECTS[kind].quoted(name)
        settings = {"table": quoted if kind == "postgres" else name}
        pipeline = Pipeline(rig, tmp_path / f"of table {number}", columns=COLUMNS, **settings)
        rows = pipeline.batch([(1, name), (2, None)])
        refusal = pipeline.offer(rows)
        if name in NO_TABLE.get(kind, ()):
            assert refusal is not None, name
            continue
        assert refusal is None, name
        pipeline.run(rows)
        rig.sql("DELETE FROM penstock_marker")  # of one sink there is one
        rig.sql("DELETE FROM penstock_batch")
        assert read(rig, COLUMNS, table=quoted) == expected(rows) + expected(rows)


PARTITIONS = [
    *(
        "",
        " ",
        ".",
        "..",
        "a/b",
        "a=b",
        "a%2Fb",
        "%",
        "null",
        "NULL",
        "nUlL",
        "__HIVE_DEFAULT_PARTITION__",
        "é",
        "e\u0301",
        "\U0001f600",
    ),
    *("a\0b", "a\nb", "a:b", "a*b", "a?b", "\\", "'", '"', "1", "1.0", "true", "2020-01-01", " a", "a ", "_a", ".a", "x" * 200),
    *("x" * 300, "._COPYING_", "\u202e", "\ufffe", "ä" * 120),
]
NO_DIRECTORY = {"", "__HIVE_DEFAULT_PARTITION__", "x" * 300}


@pytest.mark.parametrize("null_for_lost_texts", [False, True])
def test_partition_values_are_read_back_by_duckdb(pipelines, null_for_lost_texts):
    """Two texts have no directory of their own: they are refused, or NULL where that was said."""
    columns = {"id": "long", "place": "string", "flag": "boolean", "day": "date", "number": "integer"}
    pipeline = pipelines(
        "parquet", columns=columns, partition_by=["place", "flag", "day", "number"], null_for_lost_texts=null_for_lost_texts
    )
    rows = []
    for number, place in enumerate([*PARTITIONS, None]):
        row = (
            number,
            place,
            (True, False, None)[number % 3],
            (dt.date.min, dt.date.max, None)[number % 3],
            (-(1 << 31), 0, None)[number % 3],
        )
        if place in NO_DIRECTORY and not (null_for_lost_texts and len(place) < 300):
            assert isinstance(pipeline.offer([row]), StageFailed), place
        else:
            rows.append(row)
    pipeline.run(rows)
    files = f"{pipeline.rig.place}/lake/**/*.parquet"
    types = "hive_types={place: VARCHAR, flag: BOOLEAN, day: DATE, number: INTEGER}"
    found = duckdb.sql(f"SELECT id, place, flag, day, number FROM read_parquet('{files}', hive_partitioning=true, {types})")
    lost = NO_DIRECTORY if null_for_lost_texts else ()
    assert Counter(found.fetchall()) == Counter((row[0], None if row[1] in lost else row[1], *row[2:]) for row in rows)
    assert pipeline.verify().ok
