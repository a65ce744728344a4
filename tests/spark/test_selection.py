"""Sinks that take a part of the rows, and other columns of them, all in one pass; killed, replayed, changed, and refused."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.core.model import Publication, Published
from penstock.errors import PublishFailed, Usage
from penstock.run.operations import recover, verify
from penstock.sink.sqlite import SqliteSink
from penstock.spec.pipeline import DeliverySettings
from penstock.transform.selection import selected
from tests.spark.streams import put
from tests.spark.target import Rows, Target

pytestmark = pytest.mark.spark

SELECTIONS = {
    "some": {"where": "n > 3", "exclude": ["twice"]},
    "made": {"select": ["n", "n * n AS square", "named.a", "struct(n AS x) AS s"]},
    "both": {"where": "n % 2 = 0 OR word IS NULL", "select": ["upper(word) AS `WORD of it`", "twice"]},
    "none": {"where": "n > 1000000"},
    "whole": {},
}
"""Of each table its selection."""
UPSERT = {"write": "upsert", "key": ["n"]}


def numbers(spark: SparkSession, tmp_path: Path) -> DataFrame:
    rows = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
    return rows.selectExpr("n", "2 * n AS twice", "IF(n = 5, NULL, concat('w', n)) AS word", "named_struct('a', -n) AS named")


def table(tmp_path: Path, name: str, **more: object) -> penstock.SQLite:
    return penstock.SQLite(url=f"sqlite:///{tmp_path}/warehouse.db", table=name, **{**SELECTIONS[name], **more})  # type: ignore[arg-type]


def expected(name: str, found: list[int]) -> Rows:
    """By plain Python."""
    word = {n: None if n == 5 else f"w{n}" for n in found}
    rows: dict[str, list[tuple[object, ...]]] = {
        "some": [(n, word[n], f'{{"a":{-n}}}') for n in found if n > 3],
        "made": [(n, n * n, -n, f'{{"x":{n}}}') for n in found],
        "both": [(None if n == 5 else f"W{n}", 2 * n) for n in found if n % 2 == 0 or n == 5],
        "none": [],
        "whole": [(n, 2 * n, word[n], f'{{"a":{-n}}}') for n in found],
    }
    return Counter(rows[name])


@pytest.mark.parametrize("size", [3, 30_000], ids=["driver", "distributed"])
def test_each_sink_takes_its_own_rows_in_one_pass(spark: SparkSession, tmp_path: Path, size: int) -> None:
    accounts = {name: tmp_path / "lake" / name for name in ("low", "high")}
    lake = penstock.Parquet(
        accounts=accounts, route={"sql": "if(n < 4, 'low', 'high')"}, where="word IS NOT NULL", select=["twice"]
    )
    target = Target(tmp_path, lake=lake, **{name: table(tmp_path, name) for name in SELECTIONS})
    put(tmp_path / "in", "0.csv", *range(7))
    put(tmp_path / "in", "1.csv", *range(7, 7 + size))
    target.deliver(numbers(spark, tmp_path))
    found = list(range(7 + size))
    for name in SELECTIONS:
        assert target.rows(name) == expected(name, found), name
    assert target.account("low") == Counter((2 * n,) for n in range(4))  # routed by a column that is not written
    assert target.account("high") == Counter((2 * n,) for n in found if n >= 4 and n != 5)
    assert verify(target.delivery().plan).ok


def test_all_sinks_see_one_and_the_same_row_of_chance(spark: SparkSession, tmp_path: Path) -> None:
    """A pass for each would compute `rand()` anew."""
    url = f"sqlite:///{tmp_path}/warehouse.db"
    sinks = {
        "big": penstock.SQLite(url=url, table="big", where="chance >= 0.5"),
        "small": penstock.SQLite(url=url, table="small", where="NOT chance >= 0.5", select=["n", "chance * 1 AS chance"]),
        "whole": penstock.SQLite(url=url, table="every"),
    }
    target = Target(tmp_path, **sinks)
    put(tmp_path / "in", "0.csv", *range(500))
    rows = spark.readStream.schema("n INT").csv(str(tmp_path / "in")).selectExpr("n", "rand() AS chance")
    target.deliver(rows)
    assert target.rows("big") + target.rows("small") == target.rows("every")
    assert target.rows("big").total() * target.rows("small").total() > 0


def test_a_route_of_chance_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    accounts = {name: tmp_path / "lake" / name for name in ("low", "high")}
    lake = penstock.Parquet(accounts=accounts, route={"sql": "if(rand() < 0.5, 'low', 'high')"})
    put(tmp_path / "in", "0.csv", 1)
    with pytest.raises(Usage, match=r"sinks\.lake\.route is random: rand gives another value") as refused:
        Target(tmp_path, lake=lake).deliver(numbers(spark, tmp_path))
    assert "route by that column" in refused.value.remedy


def test_chance_in_the_transform_is_refused_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    """As the refusals advise: each row has its values by then. A column that nobody gave a name has that of the function."""
    accounts = {name: tmp_path / "lake" / name for name in ("low", "high")}
    lake = penstock.Parquet(accounts=accounts, route={"column": "account"}, where="chance < 0.5", select=["n", "account"])
    put(tmp_path / "in", "0.csv", *range(500))
    rows = spark.readStream.schema("n INT").csv(str(tmp_path / "in"))
    drawn = rows.selectExpr("n", "rand() AS chance", "if(rand() < 0.5, 'low', 'high') AS account", "uuid()")
    target = Target(tmp_path, lake=lake)
    target.deliver(drawn)
    for account in accounts:
        found = target.account(account)
        assert 0 < found.total() < 500
        whole: Rows = Counter((n, account) for n in range(500))
        assert not found - whole


@pytest.mark.parametrize("name", ["both", "none"])
def test_what_is_decided_stays_as_it_was_selected(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A batch is decided and not published, and then the selection is another one."""
    put(tmp_path / "in", "0.csv", *range(7))
    target = Target(tmp_path, table=table(tmp_path, name), other=table(tmp_path, "whole"))
    with dying_over(0), pytest.raises(PublishFailed, match="the driver ends here"):
        target.deliver(numbers(spark, tmp_path))
    now = (
        {"where": None, "select": ["upper(word) AS `WORD of it`", "twice"], "exclude": ()}
        if name == "both"
        else {"where": "n > 7"}
    )
    changed = {"table": table(tmp_path, name, **now), "other": table(tmp_path, "whole")}
    recover(target.delivery(sinks=changed).plan)
    assert target.rows(name) == expected(name, list(range(7)))
    put(tmp_path / "in", "1.csv", 7, 8)
    target.deliver(numbers(spark, tmp_path), sinks=changed)
    more: Rows = Counter([("W7", 14), ("W8", 16)]) if name == "both" else Counter([(8, 16, "w8", '{"a":-8}')])
    assert target.rows(name) == expected(name, list(range(7))) + more
    assert verify(target.delivery(sinks=changed).plan).ok


def test_rows_that_a_sink_does_not_take_cannot_fail_it(spark: SparkSession, tmp_path: Path) -> None:
    """Neither its expressions nor its route nor its key are computed for them."""
    whole = "word RLIKE '^[0-9]+$' -- digits"
    number = "CAST(word AS INT)"
    lake = penstock.Parquet(
        accounts={"low": tmp_path / "lake/low", "high": tmp_path / "lake/high"},
        route={"sql": f"if({number} < 5, 'low', 'high')"},
        where=whole,
        select=[f"{number} AS n -- as a number", "word"],
    )
    url = f"sqlite:///{tmp_path}/warehouse.db"
    table = penstock.SQLite(url=url, table="t", where=whole, select=[f"{number} AS n"], write="upsert", key=["n"])
    target = Target(tmp_path, lake=lake, table=table)
    put(tmp_path / "in", "0.csv", "3", "x", "", "70")
    target.deliver(spark.readStream.schema("word STRING").csv(str(tmp_path / "in")))
    assert (target.account("low"), target.account("high")) == (Counter([(3, "3")]), Counter([(70, "70")]))
    assert target.rows("t") == Counter([(3,), (70,)])


def test_a_query_without_batches_is_given_the_rows_that_its_sink_takes(spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr("id", "id * 2 AS twice", "id + 1 AS next")
    some = selected(rows, penstock.Console(where="id > 1 -- some", select=["next", "twice + id AS thrice"]))
    assert [tuple(row) for row in some.collect()] == [(3, 6), (4, 9)]
    assert selected(rows, penstock.Memory(exclude=["twice"])).columns == ["id", "next"]


@pytest.mark.parametrize("size", [2, 30_000], ids=["driver", "distributed"])
def test_a_stream_of_changes_leaves_the_newest_of_each_key(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """Deletes go by a column that is not written, are none where it is NULL, and are not computed for rows not taken."""
    url = f"sqlite:///{tmp_path}/warehouse.db"
    keyed = {"write": "upsert", "key": ["n"], "delete_when": "CAST(op AS INT) = 1 -- gone"}
    table = penstock.SQLite(url=url, table="t", where="op IS NULL OR op != 'x'", exclude=["op"], **keyed)  # type: ignore[arg-type]
    target = Target(tmp_path, table=table, other=penstock.SQLite(url=url, table="every", select=["n", "op"]))
    changes = [(1, "a", "0"), (2, "b", ""), (3, "c", "1"), (1, "d", "1"), (4, "e", "x"), (2, "f", "1"), (2, "g", "0")]
    later = [(2, "", "1"), (9, "", "1"), *((10 + n, "new", "0") for n in range(size)), (10, "", "1")]
    for name, rows in (("0.csv", changes), ("1.csv", later)):
        put(tmp_path / "in", name, *(",".join(map(str, row)) for row in rows))
    rows = spark.readStream.schema("n INT, word STRING, op STRING").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
    with dying_over(1), pytest.raises(PublishFailed, match="the driver ends here"):
        target.deliver(rows)
    assert target.rows("t") == Counter([(2, "g")])
    recover(target.delivery().plan)
    assert target.rows("t") == Counter((10 + n, "new") for n in range(1, size))
    assert target.rows("every").total() == len(changes) + len(later)
    assert verify(target.delivery().plan).ok


@contextmanager
def dying_over(batch_id: int) -> Iterator[None]:
    """The driver ends when that batch is decided, before it is published."""
    publish = SqliteSink.publish

    def ends(self: SqliteSink, publication: Publication) -> Published:
        if publication.batch.batch_id == batch_id:
            raise PublishFailed("the driver ends here", remedy="Start again.")
        return publish(self, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteSink, "publish", ends)
        yield


def test_a_batch_of_which_nothing_is_taken_empties_a_table_that_it_replaces(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the driver dies between decision and publication: the decision says that the sink took part."""
    url = f"sqlite:///{tmp_path}/warehouse.db"
    target = Target(tmp_path, table=penstock.SQLite(url=url, table="t", write="replace", where="total < 10"))
    put(tmp_path / "in", "0.csv", 4)
    incoming = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
    sums = incoming.groupBy().sum("n").toDF("total")
    target.deliver(sums, mode="complete")
    assert target.rows("t") == Counter([(4,)])
    put(tmp_path / "in", "1.csv", 40)
    with dying_over(1), pytest.raises(PublishFailed, match="the driver ends here"):
        target.deliver(sums, mode="complete")
    recover(target.delivery().plan)
    assert target.rows("t") == Counter()
    assert verify(target.delivery().plan).ok


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"where": "n"}, "sinks.table.where is 'n', which gives int, expected true or false"),
        ({"where": "m > 1"}, "sinks.table.where is 'm > 1', which Spark cannot compute from the rows"),
        ({"where": "n >"}, "'n >', which Spark cannot compute from the rows: Syntax error at its end (PARSE_SYNTAX_ERROR)."),
        ({"where": "count(1) > 1"}, "sinks.table.where is 'count(1) > 1', which"),
        ({"where": "n IN (SELECT 1)"}, "which looks at more than the row itself"),
        ({"where": "rand() < 0.5", "select": ["n"]}, "where is 'rand() < 0.5', and rand gives another value each time"),
        ({"where": "n > 1 AND Rand(7) < 0.5 -- some"}, "and rand gives another value each time it is computed"),
        ({**UPSERT, "delete_when": "uuid() < '8'"}, "delete_when is \"uuid() < '8'\", and uuid gives another value each time"),
        ({**UPSERT, "delete_when": "n"}, "sinks.table.delete_when is 'n', which gives int, expected true or false"),
        (
            {**UPSERT, "delete_when": "op > 1"},
            "sinks.table.delete_when is 'op > 1', which Spark cannot compute from the rows",
        ),
        ({**UPSERT, "delete_when": "max(n) > 1"}, "sinks.table.delete_when is 'max(n) > 1', which"),
        ({"select": ["n", "m"]}, "sinks.table.select[1] is 'm', which Spark cannot compute from the rows"),
        ({"select": ["explode(array(n, n))"]}, "sinks.table.select[0] is 'explode(array(n, n))', which"),
        ({"select": ["row_number() OVER (ORDER BY n)"]}, "which looks at more than the row itself"),
        ({"select": ["sum(n)"]}, "sinks.table.select[0] is 'sum(n)', which"),
        ({"select": ["*", "n"]}, "sinks.table.select gives two columns named 'n'"),
        ({"exclude": ["twicee"]}, "sinks.table.exclude names column 'twicee', but the rows have n, twice, word, named"),
        ({"exclude": ["n", "twice", "word", "named"]}, "sinks.table.exclude names every column of the rows"),
        ({"exclude": ["n"], "write": "upsert", "key": ["n"]}, "names column 'n', but the rows have twice, word, named"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, selection: dict[str, object], said: str
) -> None:
    put(tmp_path / "in", "0.csv", 1)
    sink = penstock.SQLite(url=f"sqlite:///{tmp_path}/warehouse.db", table="t", **selection)  # type: ignore[arg-type]
    target = Target(tmp_path, table=sink)
    with pytest.raises(Usage) as refused:
        target.deliver(numbers(spark, tmp_path))
    assert said in refused.value.message
    assert not (tmp_path / "home" / "ledger.db").exists() or "key" in selection


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (lambda: penstock.Memory(select=["a"], exclude=["b"]), "exclude is given, and select as well"),
        (lambda: penstock.SQLite(url="sqlite:///a", table="t", delete_when="b"), "delete_when is given, but write is append"),
        (
            lambda: penstock.PostgreSQL(url="postgresql://h/d", table="t", write="insert_if_absent", key=["a"], delete_when="b"),
            "delete_when is given, but write is insert_if_absent",
        ),
        (lambda: penstock.Parquet(accounts={"a": "/a"}, delete_when="b"), "delete_when is not a known key"),  # type: ignore[call-arg]
        (lambda: penstock.Kafka(bootstrap="b:1", topic="t", value="json", select=["a"]), "select is given, and value as well"),
        (lambda: penstock.Kafka(bootstrap="b:1", topic="t", key="a", exclude=["a"]), "exclude is given, and key as well"),
    ],
)
def test_settings_that_do_not_go_together(settings: Callable[[], object], said: str) -> None:
    with pytest.raises(Usage, match=said):
        DeliverySettings(pipeline="p", home="/state", sinks={"sink": settings()})
