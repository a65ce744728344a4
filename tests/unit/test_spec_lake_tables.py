"""Mistakes in the settings of tables of open formats, with what is said of them."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SOURCES, TOP, WHOLE, lake, mistake

WAYS = "append, upsert, insert_if_absent, replace or overwrite_partitions"
POSTGRES_FORM = "postgresql://user:password@host:5432/database"

OTHERS = "Other catalogs (Glue, Hive) are not supported by this version."
MISFIT = "sinks.lake.write does not go with output_mode:"
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
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, message: str, remedy: str) -> None:
    monkeypatch.chdir(tmp_path)
    error = mistake(tmp_path, TOP + SOURCES + sinks)
    assert (error.message, error.remedy) == (message, remedy)
