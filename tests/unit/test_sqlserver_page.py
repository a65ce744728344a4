"""The page about SQL Server, as far as one can follow it without one: the pipeline is valid, the queries fit the tables."""

import re
import shlex

import pytest
from tests.architecture.reading import ROOT
from tests.servers.tsql_in_sqlite import translate
from tests.unit.sqlserver_target import targets
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.run.assembly import sinks_of
from penstock.run.pipeline import Pipeline
from penstock.sink.sqlserver.sink import SqlserverSink

PAGE = (ROOT / "docs" / "howto" / "sqlserver.md").read_text()
[PIPELINE], [QUERIES] = (re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for kind in ("yaml", "sql"))
COMMANDS = [shlex.split(line.split("#")[0]) for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]

target = pytest.fixture(targets)


def test_the_pipeline_is_valid(tmp_path, monkeypatch):
    monkeypatch.setenv("WAREHOUSE_URL", "sqlserver://ann:geheim@db.example.com:1433/shop?ssl_ca=/ca.pem")
    (tmp_path / "sqlserver.yaml").write_text(PIPELINE)
    pipeline = Pipeline.from_file(tmp_path / "sqlserver.yaml")
    [sink] = sinks_of(pipeline.plan)
    assert isinstance(sink, SqlserverSink)
    assert sink.describe()["publish"].startswith("one transaction on one connection: bulk load into a temporary table")
    assert "geheim" not in str(pipeline.settings.shown())


def test_the_commands_are_there():
    for _, command, *_ in COMMANDS:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_the_queries_fit_the_tables(target):
    table = target()
    table.put(table.sink(), [(1, "a")], batch_id=0)
    with table.rig.session() as connection:
        for query in filter(str.strip, QUERIES.splitlines()):
            assert connection.execute(translate(query)).fetchall()
