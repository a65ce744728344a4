"""What the settings of many tables demand, which sinks can fill the same table, and what is shown before there is one."""

import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.app import main
from penstock.errors import Usage

URL = "sqlite:////data/shop.db"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"table": "{r}_o"}, "tables is missing, but table has columns in it"),
        ({"table": "o", "tables": ["a"]}, "table should have columns in its last part"),
        ({"table": "{r}.o", "tables": ["a"]}, "table should have columns in its last part"),
        ({"table": "{r} o", "tables": ["b"]}, "should have letters, digits, _ and - besides columns in braces"),
        ({"table": "{r}_o", "tables": ["A_o", "a_o"]}, "tables lists A_o and a_o, which are one table where case does not count"),
        ({"table": "{r}_o", "tables": ["b"]}, "tables has the text 'b', which {r}_o cannot be"),
        ({"table": "{r}_o", "tables": ["penstock_o"]}, "are Penstock's own"),
        ({"table": "{r}_o", "tables": {"pattern": "["}}, "tables.pattern is no regular expression"),
        ({"table": "{r}_o", "tables": {}}, "tables has neither names nor a pattern"),
        ({"table": "{r}_o", "tables": ["a_o"], "write": "replace"}, "write is replace, but there are many tables"),
        ({"table": "o", "unrouted": "drop"}, "unrouted is given, but there is one table"),
    ],
)
def test_what_cannot_be_is_told(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(Usage) as refused:
        penstock.SQLite(url=URL, **given)
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"table": "{r}_o", "tables": ["eu_o"]}, "tables is given, but a sink of type"),
        ({"table": "{r}_o"}, "table has columns in it ({r}_o), but a sink of type"),
    ],
)
def test_sinks_that_fill_one_table_say_so(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(Usage, match=re.escape(wrong)):
        penstock.Cassandra(url="cassandra://h/k", key=["id"], **given)
    with pytest.raises(Usage, match=re.escape(wrong)):
        penstock.DBAPI(driver="sqlite3", **given)


def test_the_table_of_a_row_is_computed_by_spark() -> None:
    names = penstock.PostgreSQL(url="postgresql://h/d", table='"my shop".{a b}_x_{c}', tables=["u_x_v"]).table_names
    assert names is not None
    assert names.route_sql == "concat(nullif(CAST(`a b` AS STRING), ''), '_x_', nullif(CAST(`c` AS STRING), ''))"


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"table": "{r}_o", "tables": ["eu_o"]}, {"table": "EU_o"}, True),
        ({"table": "{r}_o", "tables": {"pattern": "[a-z]+_o"}}, {"table": "eu_o"}, True),
        ({"table": "{r}_o", "tables": {"pattern": "[a-z]+_o"}}, {"table": "eu_x"}, False),
        ({"table": "{r}_o", "tables": ["eu_o"]}, {"table": "{s}_o", "tables": ["us_o"]}, False),
        ({"table": "{r}_o", "tables": {"pattern": ".*"}}, {"table": "{s}_o", "tables": ["us_o"]}, True),
    ],
)
def test_two_sinks_of_one_table(one: dict[str, Any], other: dict[str, Any], both: bool) -> None:  # noqa: FBT001 - a table's column
    first, second = (penstock.SQLite(url=URL, **given) for given in (one, other))
    assert first.may_fill_table_of(second) is both
    assert second.may_fill_table_of(first) is both


def test_a_sink_without_tables_is_compared_as_one_that_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = '{type: sqlite, url: "sqlite:///a.db", table: "{r}_o", tables: [eu_o]}'
    Path("f.yaml").write_text(f"pipeline: p\nhome: ./s\nsources: {{n: {{format: rate}}}}\nsinks: {{shop: {table}}}\n")
    with pytest.raises(SystemExit) as ended:
        main(["verify", "f.yaml"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "shop: as of position 0 of the ledger." in out
    assert "Nothing" not in out
