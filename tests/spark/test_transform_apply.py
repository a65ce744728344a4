"""SQL and Python transforms on real Spark: what they deliver, and what is said when they are wrong."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.errors import Failed, PenstockError, Usage
from penstock.source.open import open_sources
from penstock.spec.pipeline import Transform
from penstock.spec.source import Source
from penstock.transform.apply import apply_transform
from penstock.transform.plan import plan_of, source_order
from tests.spark.streams import everything, put

A, B = SourceName("a"), SourceName("b")
Frames = dict[SourceName, DataFrame]


@pytest.fixture
def sources(spark: SparkSession, tmp_path: Path) -> Frames:
    put(tmp_path / "a", "1.csv", "1,one", "2,two")
    put(tmp_path / "b", "1.csv", "2,zwei", "3,drei")
    settings = {name: Source(format="csv", path=str(tmp_path / name), schema="n INT, t STRING") for name in ("a", "b")}
    return open_sources(spark, settings)


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Path]:
    """A directory for the user's own modules; whatever was imported from it is forgotten afterwards."""
    folder, path, known = tmp_path / "modules", list(sys.path), set(sys.modules)
    folder.mkdir()
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def delivered(spark: SparkSession, sources: Frames, tmp_path: Path, **settings: str) -> Counter[tuple[object, ...]]:
    return everything(apply_transform(spark, sources, Transform(**settings), modules=tmp_path / "modules"), tmp_path)


def complaint(spark: SparkSession, sources: Frames, **settings: object) -> PenstockError:
    modules = settings.pop("modules", None)
    with pytest.raises((Usage, Failed)) as raised:
        apply_transform(spark, sources, Transform(**settings), modules=modules)
    assert "\n" not in str(raised.value)
    assert "SQLSTATE" not in str(raised.value)
    return raised.value


def test_sql_over_all_sources(spark: SparkSession, sources: Frames, tmp_path: Path) -> None:
    rows = delivered(spark, sources, tmp_path, sql="SELECT n, t FROM a\nUNION ALL\nSELECT n, upper(t) FROM b; -- all of it\n")

    assert rows == Counter([(1, "one"), (2, "two"), (2, "ZWEI"), (3, "DREI")])


def test_sql_with_a_static_table(spark: SparkSession, sources: Frames, tmp_path: Path) -> None:
    spark.createDataFrame([(1, "I"), (2, "II")], "n INT, roman STRING").write.parquet(str(tmp_path / "roman"))
    both = "WITH both AS (SELECT * FROM a UNION ALL SELECT * FROM b)"
    query = f"{both} SELECT t, roman FROM both JOIN parquet.`{tmp_path}/roman` USING (n)"

    assert delivered(spark, sources, tmp_path, sql=query) == Counter([("one", "I"), ("two", "II"), ("zwei", "II")])


def test_without_a_transform_the_only_source_is_passed_on(spark: SparkSession, sources: Frames, tmp_path: Path) -> None:
    assert everything(apply_transform(spark, {A: sources[A]}, None), tmp_path) == Counter([(1, "one"), (2, "two")])
    with pytest.raises(Usage, match="There are 2 sources"):
        apply_transform(spark, sources, None)


def test_python_beside_the_pipeline_file(spark: SparkSession, sources: Frames, tmp_path: Path, modules: Path) -> None:
    """Its functions, and those of a module that it imports, run on executors without being installed there."""
    (modules / "shouting.py").write_text("def loud(text):\n    return text.upper() + '!'\n")
    (modules / "jobs.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "from shouting import loud\n"
        "@udf('string')\n"
        "def louder(text):\n    return loud(text)\n"
        "def clean(spark, sources):\n"
        "    return sources['a'].unionByName(sources['b']).select('n', louder('t').alias('t'))\n"
    )

    rows = delivered(spark, sources, tmp_path, python="jobs:clean")

    assert rows == Counter([(1, "ONE!"), (2, "TWO!"), (2, "ZWEI!"), (3, "DREI!")])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELEC n FROM a",
            "transform.sql line 1, column 1: Syntax error at or near 'SELEC'",
        ),
        ("SELECT n\nFROM a\nWHERE (n = 1", "transform.sql line 3, column 13: "),
        (
            "SELECT nn FROM a",
            "transform.sql line 1, column 8: A column, variable, or function parameter with name `nn` ",
        ),
        ("SELECT n FROM aa", "transform.sql line 1, column 15: The table or view `aa` cannot be found."),
        ("SELECT n FROM a; SELECT 1", "transform.sql line 1, column 18: "),
        ("SELECT n, t FROM a GROUP BY n", 'transform.sql: The non-aggregating expression "t" is based on columns '),
        (
            "SELECT n FROM a WHERE n IN (SELECT n FROM b)",
            "transform.sql line 1, column 1: Invalid subquery: Streaming query ",
        ),
    ],
)
def test_wrong_sql_is_told_with_its_place(spark: SparkSession, sources: Frames, query: str, message: str) -> None:
    assert complaint(spark, sources, sql=query).message.startswith(message)


@pytest.mark.parametrize("statement", ["CREATE TABLE made AS SELECT 1 AS n", "DROP VIEW a", "SET x=1"])
def test_statements_are_refused_before_they_run(spark: SparkSession, sources: Frames, statement: str) -> None:
    complaint(spark, sources, sql=statement)

    assert not spark.catalog.tableExists("made")
    assert spark.table("a").isStreaming
    assert spark.conf.get("x", None) is None


def test_a_transform_that_is_no_stream(spark: SparkSession, sources: Frames) -> None:
    assert complaint(spark, sources, sql="SELECT 1 AS n").message == (
        "The transform's result is not a stream: it reads none of the sources."
    )


def test_a_source_that_is_left_out(spark: SparkSession, sources: Frames) -> None:
    assert complaint(spark, sources, sql="SELECT * FROM a").message == (
        "The transform leaves out b, so nothing of it would be delivered."
    )


WRONG_PYTHON = [
    ("x = 1", Usage, "transform.python: module jobs ({file}) has no clean."),
    ("clean = 1", Usage, "transform.python jobs:clean is a value of type int, expected"),
    ("def clean(spark): pass", Usage, "transform.python jobs:clean cannot be called with (spark, sources): "),
    ("def clean(spark, sources): pass", Usage, "transform.python jobs:clean returned None, expected"),
    ("import nosuch", Failed, "transform.python: importing jobs raised ModuleNotFoundError at {file} line 1: No module"),
    ("def clean(:", Failed, "transform.python: importing jobs raised SyntaxError"),
    (
        "def clean(spark, sources):\n  return sources['c']",
        Failed,
        "transform.python jobs:clean raised KeyError at {file} line 2: 'c'.",
    ),
    (
        "def clean(spark, sources):\n  return sources['a'].select('zz')",
        Failed,
        "transform.python jobs:clean raised AnalysisException at {file} line 2: A column, variable, or function parameter",
    ),
]


@pytest.mark.parametrize(("code", "kind", "message"), WRONG_PYTHON)
def test_wrong_python_is_told_with_its_place(
    request: pytest.FixtureRequest, modules: Path, code: str, kind: type[PenstockError], message: str
) -> None:
    (modules / "jobs.py").write_text(code)

    error = complaint(request.getfixturevalue("spark"), request.getfixturevalue("sources"), python="jobs:clean", modules=modules)

    assert type(error) is kind
    assert error.message.startswith(message.format(file=modules / "jobs.py"))


def test_a_missing_module_says_where_it_was_sought(spark: SparkSession, sources: Frames, modules: Path) -> None:
    error = complaint(spark, sources, python="nowhere.jobs:clean", modules=modules)

    assert error.message == "transform.python: there is no module nowhere.jobs."
    assert str(modules) in error.remedy


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("SELECT * FROM b UNION ALL SELECT * FROM a", ["b", "a"]),
        ("SELECT a.n FROM b JOIN a ON a.n = b.n", ["b", "a"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM a", ["a", "b", "a"]),
        ("SELECT x.n FROM a x JOIN a y ON x.n = y.n JOIN b ON b.n = x.n", ["a", "a#2", "b"]),
        ("SELECT a.n FROM b AS a JOIN a AS b ON a.n = b.n", ["b", "a"]),
        ("WITH q AS (SELECT * FROM b) SELECT q.n FROM a JOIN q ON a.n = q.n", ["b", "a"]),
    ],
)
def test_sources_are_named_in_the_order_of_spark(
    spark: SparkSession, sources: Frames, tmp_path: Path, query: str, order: list[str]
) -> None:
    """Spark writes one offset for each name, in this order: seen on what it wrote."""
    put(tmp_path / "a", "2.csv", "4,four")
    frame = apply_transform(spark, sources, Transform(sql=query))

    assert list(source_order(plan_of(frame), (A, B))) == order
    everything(frame, tmp_path)
    assert len((tmp_path / "checkpoint/offsets/0").read_text().splitlines()) - 2 == len(order)
    distinct = list(dict.fromkeys(order))
    assert sorted(folder.name for folder in (tmp_path / "checkpoint/sources").iterdir()) == [str(i) for i in range(len(distinct))]
    for folder, name in enumerate(distinct):
        logged = (tmp_path / f"checkpoint/sources/{folder}/0").read_text()
        assert f"{tmp_path}/{name.partition('#')[0]}/1.csv" in logged
