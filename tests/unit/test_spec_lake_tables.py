"""Mistakes in the settings of tables of open formats, with what is said of them."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SOURCES, TOP, WHOLE, lake, mistake

from penstock.spec.delta import Delta
from penstock.spec.iceberg import Iceberg
from penstock.spec.load import load

WAYS = "append, upsert, insert_if_absent, replace or overwrite_partitions"
GONE = "a row that is gone has no value, and an older change would bring it back"
AT_WORK = "readers may be at work in an older version"
POSTGRES_FORM = "postgresql://user:password@host:5432/database"

OTHERS = "Other catalogs (Glue, Hive) are not supported by this version."
MISFIT = "sinks.lake.write does not go with output_mode:"
TERM = "a column or one of bucket, truncate, years, months, days, hours of one"
FIRST = ", with a whole number first"
EXPIRES = "expire_snapshots_after is given"
TERMS = "Write a column, or days(column), bucket(16, column) or truncate(4, column), say. Rename a column that has such a name."
ICEBERG = ("type: iceberg", "catalog: 'sqlite:///c.db'", "table: shop.orders", "warehouse: ./ware")


@pytest.mark.parametrize(
    ("sinks", "message", "remedy"),
    [
        (
            lake("type: delta", "path: ./t", "write: upsert"),
            "f.yaml:6: sinks.lake.key is missing, but write: upsert needs it.",
            "Add key: [columns that identify a row].",
        ),
        (
            lake("type: delta", "path: ./t", "write: overwrite_partitions"),
            "f.yaml:6: sinks.lake.partition_by is missing, but write: overwrite_partitions needs it.",
            "Add partition_by: [columns].",
        ),
        (
            lake(*ICEBERG, "branch: 'a b'"),
            "f.yaml:11: sinks.lake.branch should be a name of letters, digits, dots, dashes and underscores, found 'a b'.",
            "Write audit, say.",
        ),
        (
            lake(*ICEBERG, "branch: audit", "maintenance: {expire_snapshots_after: 5d}"),
            f"f.yaml:12: sinks.lake.maintenance.{EXPIRES}, but branch is audit: snapshots of main would leave.",
            "Leave it out, and let what writes main expire snapshots.",
        ),
        (
            lake(*ICEBERG, "partition_by: [region, 'weeks(created_at)']"),
            f"f.yaml:11: sinks.lake.partition_by has 'weeks(created_at)', expected {TERM}.",
            TERMS,
        ),
        (
            lake(*ICEBERG, "partition_by: ['bucket(0, id)']"),
            "f.yaml:11: sinks.lake.partition_by has 'bucket(0, id)', expected N from 1 to 2147483647, found 0.",
            TERMS,
        ),
        (
            lake(*ICEBERG, "partition_by: ['truncate(name, 4)']"),
            f"f.yaml:11: sinks.lake.partition_by has 'truncate(name, 4)', expected truncate(W, column){FIRST}.",
            TERMS,
        ),
        (
            lake("type: delta", "path: ./t", "write: replace"),
            "f.yaml:9: sinks.lake.write does not go with output_mode: append: replace would keep the last batch only.",
            "Use write: append or upsert, or output_mode: complete.",
        ),
        (
            lake("type: delta", "path: ./t", "write: overwrite_partitions", "partition_by: [a]") + "output_mode: complete\n",
            f"f.yaml:9: {MISFIT} complete: {WHOLE}, so overwrite_partitions cannot show it.",
            "Use write: replace, or upsert with a key.",
        ),
        (
            lake("type: delta", "path: ./t", "sequence_by: at"),
            "f.yaml:9: sinks.lake.sequence_by is given, but write is append.",
            "Set write: upsert, with a key, or leave it out.",
        ),
        (
            lake("type: delta", "path: ./t", "write: upsert", "key: [id]", "sequence_by: id"),
            "f.yaml:11: sinks.lake.sequence_by names 'id', a column of the key, which is the same in all rows that are compared.",
            "Name the column that grows with each change of a row.",
        ),
        (
            lake(*ICEBERG, "write: upsert", "key: [id]", "sequence_by: at", "delete_when: gone"),
            f"f.yaml:13: sinks.lake.sequence_by is given, and delete_when as well: {GONE}.",
            "Leave delete_when out: keep a deleted row, with a column that says so, and let readers filter such rows.",
        ),
        (
            lake("type: delta", "path: ./t", "write: merge"),
            f"f.yaml:9: sinks.lake.write should be {WAYS}, found the text 'merge'.",
            f"Use one of {WAYS}.",
        ),
        (
            lake("type: iceberg", "catalog: 'glue://ann:geheim@host/catalog'", "table: shop.orders", "warehouse: ./ware"),
            "f.yaml:8: sinks.lake.catalog should be the URL of a catalog, found glue://….",
            f"Write sqlite:///catalog.db, {POSTGRES_FORM}, or https://host/path of a REST server. {OTHERS}",
        ),
        (
            lake("type: iceberg", "catalog: 'sqlite:///c.db'", "table: orders", "warehouse: ./ware"),
            "f.yaml:9: sinks.lake.table should be a namespace and a name of letters, digits and underscores, found 'orders'.",
            "Write shop.orders, say.",
        ),
        (
            lake(*ICEBERG[:3], "warehouse: gs://bucket/ware"),
            "f.yaml:10: sinks.lake.warehouse is at gs://, where this version writes no Iceberg tables.",
            "Name a directory, s3://bucket/prefix or az://container@account/prefix.",
        ),
        (
            lake(*ICEBERG[:1], "catalog: 'https://ann:geheim@host/api'", *ICEBERG[2:]),
            "f.yaml:8: sinks.lake.catalog should be https://host/path, found https://….",
            "Give user, password and token as catalog_options.",
        ),
        (
            lake(*ICEBERG, "catalog_options: {token: geheim}"),
            "f.yaml:11: sinks.lake.catalog_options are given, but the catalog is a database.",
            "Leave them out.",
        ),
        (
            lake(*ICEBERG[:1], "catalog: 'https://host/api'", *ICEBERG[2:], "catalog_options: {tokn: geheim}"),
            "f.yaml:11: sinks.lake.catalog_options.tokn is not a known option.",
            "The options are token, credential, oauth2-server-uri, scope, audience, resource, warehouse, prefix.",
        ),
        (
            lake(*ICEBERG, "options: {region: eu-west-1}"),
            "f.yaml:11: sinks.lake.options are given, but the table is in no store.",
            "Leave them out.",
        ),
        (
            lake(*ICEBERG, "write: insert_if_absent"),
            "f.yaml:6: sinks.lake.key is missing, but write: insert_if_absent needs it.",
            "Add key: [columns that identify a row].",
        ),
        (
            lake(*ICEBERG, "write: append") + "output_mode: update\n",
            f"f.yaml:11: {MISFIT} update: in update mode a batch sends rows again that have changed, so append cannot show it.",
            "Use write: upsert with a key.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {every: 10}"),
            "f.yaml:9: sinks.lake.maintenance names nothing to do.",
            "Add compact: true, or vacuum_after: 7d.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: false}"),
            "f.yaml:9: sinks.lake.maintenance.compact should be true or a mapping, found false.",
            "Write compact: true, or compact: {target_file_size: 128MB}.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {vacuum_after: 59m}"),
            f"f.yaml:9: sinks.lake.maintenance.vacuum_after should be at least 1h: {AT_WORK}.",
            "Write vacuum_after: 1h, or more.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: true, every: 0}"),
            "f.yaml:9: sinks.lake.maintenance.every should be greater than or equal to 1, found the number 0.",
            "Correct the value.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: true"),
            "f.yaml:9: sinks.lake.maintenance should be a mapping, found true.",
            "Write it as {key: value}, or as key: value lines, indented below the key.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: true, every: often}"),
            "f.yaml:9: sinks.lake.maintenance.every should be a whole number, found the text 'often'.",
            "Write a whole number without quotes.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: {target_file_size: 0}}"),
            "f.yaml:9: sinks.lake.maintenance.compact.target_file_size should be a size of at least 1KB, found the number 0.",
            "Write it with a unit, like 128MB.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: {size: 1MB}}"),
            "f.yaml:9: sinks.lake.maintenance.compact.size is not a known key.",
            "The keys here are: target_file_size.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {vacuum_after: a week}"),
            "f.yaml:9: sinks.lake.maintenance.vacuum_after should be a duration with a unit, found the text 'a week'.",
            "Write it like 10s, 500ms or 5m.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {vacum_after: 5d}"),
            "f.yaml:9: sinks.lake.maintenance.vacum_after is not a known key.",
            "Did you mean vacuum_after? The keys here are: every, compact, vacuum_after.",
        ),
        (
            lake(*ICEBERG, "maintenance: {expire_snapshots_after: 5d, retain_last: 0}"),
            "f.yaml:11: sinks.lake.maintenance.retain_last should be greater than or equal to 1, found the number 0.",
            "Correct the value.",
        ),
        (
            lake(*ICEBERG, "maintenance: {compact: true, retain_last: 3}"),
            "f.yaml:11: sinks.lake.maintenance.retain_last means nothing without expire_snapshots_after: no snapshot leaves.",
            "Add expire_snapshots_after: 5d, or take retain_last out.",
        ),
        (
            lake("type: delta", "path: ./t", "maintenance: {compact: true, expire_snapshots_after: 5d}"),
            "f.yaml:9: sinks.lake.maintenance.expire_snapshots_after is not a known key.",
            "The keys here are: every, compact, vacuum_after.",
        ),
        (
            lake(*ICEBERG, "maintenance: {retain_last: 3}"),
            "f.yaml:11: sinks.lake.maintenance names nothing to do.",
            "Add compact: true, or expire_snapshots_after: 5d.",
        ),
        (
            lake(*ICEBERG, "maintenance: {expire_snapshots_after: 10s}"),
            f"f.yaml:11: sinks.lake.maintenance.expire_snapshots_after should be at least 1h: {AT_WORK}.",
            "Write expire_snapshots_after: 1h, or more.",
        ),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, message: str, remedy: str) -> None:
    monkeypatch.chdir(tmp_path)
    error = mistake(tmp_path, TOP + SOURCES + sinks)
    assert (error.message, error.remedy) == (message, remedy)


@pytest.mark.parametrize(
    ("given", "compacts", "target"),
    [
        ("{compact: true}", True, None),
        ("{compact: {target_file_size: 64MB}}", True, 64_000_000),
        ("{vacuum_after: 1h}", False, None),
    ],
)
def test_maintenance_of_delta(tmp_path: Path, given: str, *, compacts: bool, target: int | None) -> None:
    (tmp_path / "f.yaml").write_text(TOP + SOURCES + lake("type: delta", "path: ./t", f"maintenance: {given}"))
    sink = load(tmp_path / "f.yaml").sinks["lake"]
    assert isinstance(sink, Delta)
    assert sink.maintenance is not None
    assert (sink.maintenance.every, sink.maintenance.compact is not None) == (100, compacts)
    assert sink.maintenance.vacuum_after == (None if compacts else 3_600_000)
    assert sink.maintenance.compact is None or sink.maintenance.compact.target_file_size == target


def test_maintenance_of_iceberg(tmp_path: Path) -> None:
    given = "maintenance: {every: 7, expire_snapshots_after: 5d}"
    (tmp_path / "f.yaml").write_text(TOP + SOURCES + lake(*ICEBERG, given))
    sink = load(tmp_path / "f.yaml").sinks["lake"]
    assert isinstance(sink, Iceberg)
    assert sink.maintenance is not None
    found = sink.maintenance
    assert (found.every, found.compact, found.expire_snapshots_after, found.retain_last) == (7, None, 432_000_000, 10)


def test_terms_of_partition_by_have_one_spelling() -> None:
    given = ["region", "Day(created_at)", "bucket(16,id)", "truncate( 4, `name` )"]
    found = Iceberg(catalog="sqlite:////c.db", table="shop.orders", warehouse="/ware", partition_by=given)
    assert found.partition_by == ("region", "days(created_at)", "bucket(16, id)", "truncate(4, name)")
