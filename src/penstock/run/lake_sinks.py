"""Sinks of Delta and Iceberg tables, made from their settings. Nothing is connected or written yet."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.model import AccountName, PipelineName, SinkName
from penstock.core.table_names import TableNames
from penstock.core.update_condition import parse_condition
from penstock.protocols import Sink
from penstock.run.runtime import now_ms
from penstock.spec.delta import Delta
from penstock.spec.iceberg import Iceberg
from penstock.spec.lake import LakeTable
from penstock.spec.many_tables import one_of

if TYPE_CHECKING:
    from penstock.sink.lake.log import TableLog
    from penstock.sink.lake.maintained_table import CleansTable
    from penstock.sink.lake.maintenance import Maintenance
    from penstock.sink.lake.sink import LakeSink
    from penstock.sink.parquet.directory.account import DirectoryAccount
    from penstock.sink.parquet.object.account import ObjectAccount
    from penstock.sink.spool import Spool, SpoolRoot
    from penstock.spec.maintenance import Maintenance as MaintenanceSettings


def _many(
    name: SinkName, settings: LakeTable, names: TableNames, one: "Callable[[SinkName, Any, Spool], LakeSink]", spool: "SpoolRoot"
) -> Sink:
    """Return a sink into many tables, each of which `one` makes from the settings with its own name."""
    from penstock.sink.many.lake import ManyLakeTables
    from penstock.sink.many.shares import child_name
    from penstock.sink.spool import Spool

    own_spool = Spool(root=spool, sink=name)

    def make(table: AccountName) -> "LakeSink":
        given = settings.model_copy(update={**one_of(settings, table), "tables": None, "unrouted": "fail"})
        return one(child_name(name, table), given, own_spool)

    is_spooled = settings.write in {"upsert", "insert_if_absent"}
    return ManyLakeTables(
        name=name,
        names=names,
        make=make,
        spool=own_spool if is_spooled else None,
        create=settings.create,
        unrouted=settings.unrouted,
    )


def delta_sink(name: SinkName, settings: Delta, *, pipeline: PipelineName, spool: "SpoolRoot") -> Sink:
    """Return a sink that fills a Delta table, or many. Raises ImportError where its library is not installed."""
    from penstock.sink.spool import Spool

    one = partial(_delta, pipeline=pipeline)
    names = settings.table_names
    return one(name, settings, Spool(root=spool, sink=name)) if names is None else _many(name, settings, names, one, spool)


def _delta(name: SinkName, settings: Delta, spool: "Spool", *, pipeline: PipelineName) -> "LakeSink":
    from penstock.sink.delta.log import delta_log
    from penstock.sink.delta.vacuum import Vacuum

    account, given = _delta_account(settings), settings.maintenance
    vacuum_after_ms = None if given is None else given.vacuum_after
    log = delta_log(account, vacuum_after_ms=vacuum_after_ms)
    cleaner = None if vacuum_after_ms is None else Vacuum(log=log, after_ms=vacuum_after_ms, now_ms=now_ms)
    maintenance = _maintenance(settings, given, cleaner)
    return _lake_sink(name, settings, pipeline=pipeline, spool=spool, account=account, log=log, maintenance=maintenance)


def iceberg_sink(name: SinkName, settings: Iceberg, *, pipeline: PipelineName, spool: "SpoolRoot") -> Sink:
    """Return a sink that fills an Iceberg table, or many. Raises ImportError where its library is not installed."""
    from penstock.sink.spool import Spool

    one = partial(_iceberg, pipeline=pipeline)
    names = settings.table_names
    return one(name, settings, Spool(root=spool, sink=name)) if names is None else _many(name, settings, names, one, spool)


def _iceberg(name: SinkName, settings: Iceberg, spool: "Spool", *, pipeline: PipelineName) -> "LakeSink":
    from penstock.sink.iceberg.catalog import CatalogAddress
    from penstock.sink.iceberg.expiry import Expiry
    from penstock.sink.iceberg.log import IcebergTable
    from penstock.sink.iceberg.place import place_of

    place, given = place_of(settings.url, settings.options), settings.maintenance
    catalog = CatalogAddress(url=settings.catalog, name=settings.catalog_name, options=settings.catalog_options)
    table = IcebergTable(catalog=catalog, name=settings.table, place=place, branch=settings.branch)
    cleaner = None
    if given is not None and given.expire_snapshots_after is not None:
        cleaner = Expiry(log=table, after_ms=given.expire_snapshots_after, retain_last=given.retain_last, now_ms=now_ms)
    maintenance = _maintenance(settings, given, cleaner)
    return _lake_sink(name, settings, pipeline=pipeline, spool=spool, account=place.account, log=table, maintenance=maintenance)


def _delta_account(settings: Delta) -> "DirectoryAccount | ObjectAccount":
    from penstock.sink.parquet import directory_account, object_account

    if settings.directory is None:
        return object_account(settings.path, options=settings.options)
    return directory_account(settings.directory)


def _maintenance(settings: LakeTable, given: "MaintenanceSettings | None", cleaner: "CleansTable | None") -> "Maintenance | None":
    from penstock.sink.lake.maintenance import Maintenance

    if given is None:
        return None
    target_bytes = None if given.compact is None else given.compact.target_file_size or settings.target_file_size
    return Maintenance(every=given.every, target_bytes=target_bytes, cleaner=cleaner)


def _lake_sink(
    name: SinkName,
    settings: LakeTable,
    *,
    pipeline: PipelineName,
    spool: "Spool",
    account: "DirectoryAccount | ObjectAccount",
    log: "TableLog",
    maintenance: "Maintenance | None",
) -> "LakeSink":
    from penstock.sink.lake.keyed_sink import lake_sink
    from penstock.sink.lake.write_mode import WriteMode
    from penstock.sink.table.history import HISTORY

    return lake_sink(
        name=name,
        pipeline=pipeline,
        account=account,
        log=log,
        mode=WriteMode(
            write=HISTORY if settings.history else settings.write,
            key=settings.key if settings.write in {"upsert", "insert_if_absent"} else (),
            deletes=settings.deletes is not None,
            sequence_by=settings.sequence_by,
            update_when=None if settings.update_when is None else parse_condition(settings.update_when),
            keeps_rows=settings.existing_rows == "keep",
        ),
        spool=spool,
        partition_by=settings.partition_by,
        create=settings.create,
        schema_changes=settings.schema_changes,
        compression=settings.compression,
        target_file_size_bytes=settings.target_file_size,
        maintenance=maintenance,
    )
