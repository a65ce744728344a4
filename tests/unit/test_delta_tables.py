"""Starts of the delta sink: which tables, columns and types are refused, and what `check` says."""

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from azure.core.credentials import AccessToken
from deltalake import DeltaTable, Schema, write_deltalake
from tests.conformance.delta_rig import DeltaRig, StoreRig, sink_into

from penstock.blob.s3 import S3Store
from penstock.core.model import LedgerId
from penstock.errors import Failed, LedgerMismatch, Refused, Retryable, StoreIgnoresConditions, Usage
from penstock.sink.lake.sink import LakeSink
from penstock.sink.parquet import directory_account, object_account
from penstock.testing.conformance import PIPELINE, SCHEMA, Bench
from penstock.testing.conformance.rig import LEDGER_ID


@pytest.fixture
def rig(tmp_path: Path) -> DeltaRig:
    return DeltaRig(tmp_path)


@pytest.fixture
def bench(rig: DeltaRig) -> Iterator[Bench]:
    bench = Bench(rig)
    yield bench
    bench.close()


def table_at(rig: DeltaRig) -> DeltaTable:
    return DeltaTable(str(rig.root))


class TestStarts:
    def test_a_table_is_created_with_frequent_checkpoints(self, bench: Bench) -> None:
        bench.sink()
        table = table_at(bench.rig)
        assert table.metadata().configuration["delta.checkpointInterval"] == "10"
        assert all(field.nullable for field in table.schema().fields)

    def test_a_table_that_is_missing_with_create_false(self, rig: DeltaRig) -> None:
        with pytest.raises(Refused, match="has create: false"):
            sink_at(rig, create=False).prepare(pipeline=PIPELINE, schema=SCHEMA)
        assert not rig.root.exists()

    def test_a_directory_with_files_that_is_no_table(self, rig: DeltaRig) -> None:
        rig.root.mkdir(parents=True)
        (rig.root / "part-1.parquet").touch()
        for start in (LakeSink.prepare, LakeSink.require_schema_accepted):
            with pytest.raises(Refused, match=r"holds part-1\.parquet, but no Delta table"):
                start(sink_at(rig), pipeline=PIPELINE, schema=SCHEMA)
        assert not (rig.root / "_delta_log").exists()

    def test_a_table_with_rows_of_others(self, rig: DeltaRig) -> None:
        write_deltalake(str(rig.root), pa.table({"id": [1]}))
        for start in (LakeSink.prepare, LakeSink.require_schema_accepted):
            with pytest.raises(Refused, match="holds rows that sink 'lake' of pipeline 'conformance' did not deliver"):
                start(sink_at(rig), pipeline=PIPELINE, schema=ONE_COLUMN)

    def test_a_table_that_others_made_empty_is_filled(self, rig: DeltaRig, bench: Bench) -> None:
        columns = json.loads(SCHEMA)["fields"][::-1]
        made = json.dumps({"type": "struct", "fields": columns})
        DeltaTable.create(str(rig.root), Schema.from_json(made))
        shown = bench.deliver(bench.sink(), bench.rows(range(50)), batch_id=0)
        bench.require_shown(shown)
        assert bench.verify(bench.sink()).ok

    def test_a_table_of_another_sink(self, rig: DeltaRig, bench: Bench) -> None:
        bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=0)
        other = sink_into(directory_account(rig.root), name="other")
        with pytest.raises(Refused, match="belongs to sink 'lake' of pipeline 'conformance', expected sink 'other'"):
            other.prepare(pipeline=PIPELINE, schema=SCHEMA)

    def test_staging_that_is_lost_between_two_runs_is_made_anew(self, rig: DeltaRig, bench: Bench) -> None:
        """The marker in the table says whose it is."""
        first = bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=0)
        shutil.rmtree(rig.root.parent / ".penstock-staging")
        sink = bench.sink()
        assert isinstance(sink, LakeSink)
        with pytest.raises(LedgerMismatch):
            sink.claim(LedgerId("a7" * 16))
        sink.claim(LEDGER_ID)
        second = bench.deliver(sink, bench.rows(range(10, 15)), batch_id=1)
        bench.require_shown(first, second)

    def test_a_log_that_cannot_be_read(self, rig: DeltaRig, bench: Bench) -> None:
        bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=0)
        (rig.root / "_delta_log" / f"{1:020d}.json").write_text("{")
        [*_, finding] = sink_at(rig).check()
        assert not finding.ok
        assert "is damaged: Json error: " in finding.message

    def test_a_log_that_lacks_a_commit_says_so_and_may_be_looked_at_again(self, rig: DeltaRig, bench: Bench) -> None:
        """Another writer that removes old entries leaves gaps for a moment."""
        for number in range(2):
            bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=number)
        (rig.root / "_delta_log" / f"{1:020d}.json").unlink()
        with pytest.raises(Retryable, match="lacks a commit between others"):
            bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=2)

    def test_a_file_of_the_table_that_is_gone_is_not_called_changed_content(self, rig: DeltaRig, bench: Bench) -> None:
        bench.deliver(bench.sink(), bench.rows(range(5)), batch_id=0)
        next(rig.root.rglob("*.parquet")).unlink()
        assert any("it is not there any more" in problem.message for problem in bench.verify(bench.sink()).problems)

    def test_check_leaves_nothing_behind(self, rig: DeltaRig, bench: Bench) -> None:
        assert [finding.ok for finding in sink_at(rig).check()] == [True, True]
        assert not rig.root.exists()
        assert [finding.ok for finding in sink_at(rig, create=False).check()] == [True, False]
        bench.sink()
        assert "is at version 0" in sink_at(rig).check()[-1].message

    def test_it_must_be_prepared(self, rig: DeltaRig) -> None:
        with pytest.raises(Failed):
            sink_at(rig).stager()


def test_a_store_that_ignores_conditions_is_refused_before_a_table_is_made(tmp_path: Path, monkeypatch) -> None:
    """There one commit would replace another."""
    rig = StoreRig(tmp_path)
    monkeypatch.setattr(S3Store, "put_if_absent", lambda self, key, data, *, tag: (self.put(key, data, tag=tag), True)[1])
    with pytest.raises(StoreIgnoresConditions, match="let an object be created twice"):
        rig.make().prepare(pipeline=PIPELINE, schema=SCHEMA)
    assert not [name for name in rig.outside.listing() if "_delta_log" in name]


def test_the_library_gets_the_credentials_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everything else in Penstock that talks to S3."""
    rig = StoreRig(tmp_path)
    options = rig.place.options
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY", "region": "AWS_DEFAULT_REGION"}
    for option, name in names.items():
        monkeypatch.setenv(name, options[option])
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", options["endpoint"])
    account = object_account(rig.place.url)
    assert account.store.for_delta().items() >= rig.storage_options.items()
    sink = sink_into(account)
    sink.prepare(pipeline=PIPELINE, schema=SCHEMA)
    assert rig.table().version() == 0


def test_other_stores_are_refused() -> None:
    with pytest.raises(Usage, match="cannot hold a Delta table"):
        object_account("hdfs://namenode:8020/table").store.for_delta()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"credentials_file": "/etc/key.json"}, {"google_service_account": "/etc/key.json"}),
        (
            {"credentials_file": "/etc/key.json", "endpoint": "https://storage.example"},
            {"google_service_account": "/etc/key.json", "google_base_url": "https://storage.example"},
        ),
    ],
    ids=["none", "key file", "key file and endpoint"],
)
def test_the_library_reaches_google_as_the_account_does(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], expected: dict[str, str]
) -> None:
    """An endpoint without credentials is in the conformance suite."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    store = object_account("gs://flights/raw/table", options=options).store
    assert store.for_delta() == expected
    assert store.place.for_delta == "gs://flights/raw/table"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/etc/default.json")
    assert store.for_delta() == (expected or {"google_application_credentials": "/etc/default.json"})


SECRET = b64encode(b"secret of an account").decode()
SIGNED = "sv=2026-01-01&sig=c2lnbmVk%3D"
OF_ACCOUNT = {"azure_storage_account_name": "shop"}
IN_CLOUD = {**OF_ACCOUNT, "azure_storage_endpoint": "https://shop.blob.core.windows.net", "allow_http": "false"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"account_key": SECRET}, {**IN_CLOUD, "azure_storage_account_key": SECRET}),
        ({"sas_token": SIGNED}, {**IN_CLOUD, "azure_storage_sas_token": SIGNED}),
        (
            {"connection_string": f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={SECRET}"},
            {**IN_CLOUD, "azure_storage_account_key": SECRET},
        ),
        (
            {"connection_string": f"BlobEndpoint=https://shop.blob.core.windows.net;SharedAccessSignature={SIGNED}"},
            {**IN_CLOUD, "azure_storage_sas_token": SIGNED},
        ),
        (
            {"account_key": SECRET, "endpoint": "http://127.0.0.1:10000/shop"},
            {**OF_ACCOUNT, "azure_storage_use_emulator": "true", "azure_storage_account_key": SECRET},
        ),
    ],
    ids=["key", "sas", "string with a key", "string with a sas", "emulator"],
)
def test_the_library_reaches_azure_as_the_account_does(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", "")  # to be put back behind the test
    account = object_account("az://flights@shop/raw/table", options=options)
    assert account.store.for_delta() == expected
    assert account.store.place.for_delta == "az://flights/raw/table"
    if "endpoint" in options:
        assert os.environ["AZURITE_BLOB_STORAGE_URL"] == "http://127.0.0.1:10000"


def test_the_library_signs_as_the_identity_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Identity:
        def get_token(self, scope: str, **given: object) -> "AccessToken":
            return AccessToken(f"token for {scope}", 0)

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Identity)
    options = object_account("az://flights@identified/raw").store.for_delta()
    assert options["azure_storage_token"] == "token for https://storage.azure.com/.default"


def schema_of(**kinds: object) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


ONE_COLUMN = schema_of(id="long")


def sink_at(rig: DeltaRig, *, create: bool = True, partition_by: tuple[str, ...] = ()) -> LakeSink:
    return sink_into(directory_account(rig.root), partition_by=partition_by, create=create)


@pytest.mark.parametrize(
    "kind",
    [
        *("void", "variant", "time(6)", "interval day to second", "varchar(3)", "char(3)", "string collate UNICODE"),
        {"type": "array", "elementType": "varchar(3)", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "void", "valueContainsNull": True},
        {"type": "struct", "fields": [{"name": "x", "type": "time(6)", "nullable": True, "metadata": {}}]},
    ],
    ids=str,
)
def test_types_that_are_refused(rig: DeltaRig, kind: object) -> None:
    with pytest.raises(Usage, match="Sink 'lake': Column 'x"):
        sink_at(rig).prepare(pipeline=PIPELINE, schema=schema_of(id="long", x=kind))
    assert not rig.root.exists()


def test_names_that_are_refused(rig: DeltaRig) -> None:
    for names in (("id", "two words"), ("id", "a=b"), ("id", "ID")):
        with pytest.raises(Usage):
            sink_at(rig).prepare(pipeline=PIPELINE, schema=schema_of(**dict.fromkeys(names, "long")))
    with pytest.raises(Usage, match="partition_by names the column 'gone'"):
        sink_at(rig, partition_by=("gone",)).prepare(pipeline=PIPELINE, schema=SCHEMA)


FEATURES = {
    "column mapping": {"configuration": {"delta.columnMapping.mode": "name"}},
    "a CHECK constraint": {"configuration": {"delta.constraints.positive": "id > 0"}},
    "row tracking": {"configuration": {"delta.enableRowTracking": "true"}},
    "in-commit timestamps": {"configuration": {"delta.enableInCommitTimestamps": "true"}},
    "deletion vectors": {"configuration": {"delta.enableDeletionVectors": "true"}},
    "a generated column, 'id'": {"metadata": {"delta.generationExpression": "1"}},
    "an identity column, 'id'": {"metadata": {"delta.identity.start": 1}},
    "an invariant, 'id'": {"metadata": {"delta.invariants": "{}"}},
    "the feature clustering": {"features": ["clustering"]},
}


@pytest.mark.parametrize("what", FEATURES)
def test_tables_that_are_refused(rig: DeltaRig, what: str) -> None:
    """Or the library cannot even load them, which is told as well."""
    given = FEATURES[what]
    field = {"name": "id", "type": "long", "nullable": True, "metadata": given.get("metadata", {})}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    if "features" in given:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": given["features"]}
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": given.get("configuration", {}),
        "createdTime": 0,
    }
    (rig.root / "_delta_log").mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (rig.root / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(Refused, match=what):
        sink_at(rig).prepare(pipeline=PIPELINE, schema=ONE_COLUMN)
    [*_, finding] = sink_at(rig).check()
    assert not finding.ok
    assert what in finding.message


@pytest.mark.parametrize(
    ("schema", "partition_by", "reason"),
    [
        (schema_of(id="long", more="string"), (), "has no column 'more', which the rows have"),
        (schema_of(id="integer"), (), "has the type long in column 'id', and the rows have integer"),
        (schema_of(other="long"), (), "has no column 'other'"),
        (ONE_COLUMN, ("id",), "is partitioned by nothing, and partition_by is id"),
    ],
)
def test_columns_that_do_not_fit(rig: DeltaRig, schema: str, partition_by: tuple[str, ...], reason: str) -> None:
    DeltaTable.create(str(rig.root), Schema.from_json(ONE_COLUMN))
    with pytest.raises((Refused, Usage), match=reason) if not partition_by else pytest.raises((Refused, Usage)):
        sink_at(rig, partition_by=partition_by).prepare(pipeline=PIPELINE, schema=schema)


def test_a_column_that_must_not_be_null(rig: DeltaRig) -> None:
    DeltaTable.create(str(rig.root), Schema.from_json(ONE_COLUMN.replace('"nullable": true', '"nullable": false')))
    with pytest.raises(Refused, match="must not be null, and in the rows it may be"):
        sink_at(rig).prepare(pipeline=PIPELINE, schema=ONE_COLUMN)
    sink_at(rig).prepare(pipeline=PIPELINE, schema=ONE_COLUMN.replace('"nullable": true', '"nullable": false'))
