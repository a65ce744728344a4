"""SQL of the user's own: given in the pipeline file, or in a file beside it."""

from pathlib import Path

import pytest

import penstock
from penstock.errors import Usage
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.spec.load import load
from penstock.spec.pipeline import DeliverySettings

SQL = "INSERT INTO {table} SELECT * FROM {staged}; DELETE FROM {table} WHERE id < 0"
FILE = """\
pipeline: flights
home: ./state
sources: {flights: {format: csv, path: ./incoming, schema: id INT}}
sinks:
  warehouse: {type: %s, url: "%s://host/db", table: flights, write: merge, merge: %s}
"""
DATABASES = pytest.mark.parametrize(("kind", "scheme"), [("postgres", "postgresql"), ("mysql", "mysql")])


def described(settings: DeliverySettings) -> str:
    [sink] = sinks_of(DeliveryPlan(settings=settings))
    return sink.describe()["publish"]


@DATABASES
@pytest.mark.parametrize("merge", [f'{{sql: "{SQL}"}}', "{file: sql/merge.sql}"], ids=["sql", "file"])
def test_the_sink_has_the_sql(kind: str, scheme: str, merge: str, tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "merge.sql").write_text(SQL)
    (tmp_path / "p.yaml").write_text(FILE % (kind, scheme, merge))
    settings = load(tmp_path / "p.yaml")
    assert settings.sinks["warehouse"].merge.text() == SQL  # type: ignore[union-attr]
    assert "rows (merge by 2 of your own statements) and marker into" in described(settings)


@DATABASES
def test_in_code(kind: str, scheme: str) -> None:
    make = {"postgres": penstock.PostgreSQL, "mysql": penstock.MySQL}[kind]
    sink = make(url=f"{scheme}://host/db", table="t", write="merge", merge={"sql": SQL})
    assert "merge by 2" in described(DeliverySettings(pipeline="p", home="/state", sinks={"warehouse": sink}))


@DATABASES
def test_a_file_that_cannot_be_read_and_sql_that_will_not_do_are_told(kind: str, scheme: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    for merge, said in (
        ("{file: merge.sql}", "The SQL of `merge` cannot be read: .*No such file or directory"),
        ("{sql: COMMIT}", "Sink 'warehouse': A statement of `merge` begins with 'COMMIT'"),
    ):
        file.write_text(FILE % (kind, scheme, merge))
        with pytest.raises(Usage, match=said):
            described(load(file))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("merge: {}", "merge: {}"), "sinks.warehouse.merge has neither sql nor file"),
        (("merge: {}", "merge: {sql: x, file: y}"), "sinks.warehouse.merge has both sql and file"),
        ((", merge: {}", ""), "sinks.warehouse.merge is missing, but write: merge needs it"),
        (("write: merge, merge: {}", "merge: {sql: x}"), "sinks.warehouse.merge is given, but write is append"),
        (("merge: {}", "merge: {sql: x}, schema_changes: add"), "sinks.warehouse.schema_changes is add, but write is merge"),
        (("merge: {}}", "merge: {sql: x}}\noutput_mode: complete"), "so merge cannot show it"),
    ],
)
def test_settings_that_make_no_sense(changes: tuple[str, str], said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text((FILE % ("postgres", "postgresql", "{}")).replace(*changes))
    with pytest.raises(Usage) as refused:
        load(tmp_path / "p.yaml")
    assert said in refused.value.message


def test_other_databases_have_no_such_way(tmp_path: Path) -> None:
    text = FILE % ("sqlite", "sqlite", "{sql: x}")
    (tmp_path / "p.yaml").write_text(text.replace("sqlite://host/db", "sqlite:///x.db").replace(", merge: {sql: x}", ""))
    with pytest.raises(Usage) as refused:
        load(tmp_path / "p.yaml")
    assert "sinks.warehouse.write" in refused.value.message
