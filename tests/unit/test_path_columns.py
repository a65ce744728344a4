"""Columns of an input path that Spark finds after the query has begun: it would mix them up with others."""

from collections.abc import Sequence

import pytest

from penstock.core.topics import InputFile
from penstock.errors import Retryable
from penstock.run.path_columns import FileRelation, require_columns_of_paths_known


def require(path: str, *columns: str, root: str = "/in") -> None:
    files = [InputFile(path="file:///in/plain.csv", modified_ms=0), InputFile(path=path, modified_ms=0)]
    require_columns_of_paths_known(files, lambda: [FileRelation(path=root, columns=columns)])


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("file:///in/month=7/a.csv", ("month", "id", "origin")),
        ("file:///in/month=7/a.csv", ("id", "MONTH", "origin")),
        ("hdfs://name/in/Month=7/a.csv", ("month", "id")),
        ("file:///in/month=7/day=1/a.csv", ("id", "day", "month")),
    ],
)
def test_a_column_that_is_not_where_spark_puts_it(path: str, columns: Sequence[str]) -> None:
    with pytest.raises(Retryable, match="came after the query had begun"):
        require(path, *columns)


@pytest.mark.parametrize(
    ("path", "columns", "root"),
    [
        ("file:///in/month=7/a.csv", ("id", "origin", "month"), "/in"),
        ("file:///in/month=7/day=1/a.csv", ("id", "Month", "day"), "file:///in/"),
        ("file:///in/id=7.csv", ("id", "origin"), "/in"),
        ("file:///other/id=7/a.csv", ("id", "origin"), "/in"),
        ("file:///id=3/in/a.csv", ("id", "origin"), "/id=3/in"),
        ("file:///in/year=7/a.csv", ("id", "origin"), "/in"),
        ("file:///in%20here/id=7/a.csv", ("origin", "id"), "/in here"),
    ],
)
def test_what_spark_puts_where_it_is(path: str, columns: Sequence[str], root: str) -> None:
    require(path, *columns, root=root)


def test_the_query_is_not_asked_where_no_path_has_columns() -> None:
    def opened() -> Sequence[FileRelation]:
        raise AssertionError("asked")

    require_columns_of_paths_known([InputFile(path="file:///in/a.csv", modified_ms=0)], opened)
