"""`penstock.read`: the files of a table as of a batch, for readers who want whole batches of every account, or none of them."""

import json
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from penstock.commit.as_of import AsOf, as_of, backfilled_batch, newest_for_sink, newest_whole, whole_batch
from penstock.commit.publication import decision_in
from penstock.core.bad_record import SCHEMA
from penstock.core.model import AccountName, BatchId, Entry, Position, SinkName, Totals
from penstock.errors import Refused, Retryable, Usage
from penstock.run.assembly import DeliveryPlan, ledger_of, table_of
from penstock.run.ledger_match import require_marker_not_older
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.table import PublishedFile, Table
from penstock.spark.column_name import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.sink.parquet import ParquetSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The files of a table as of one decision, in every account asked for; `as_of` is None while nothing is published.

    The list is exact and stays so: files published later have other names. Maintenance may still remove files that it names.
    """

    sink: SinkName
    as_of: AsOf | None
    files: tuple[PublishedFile, ...]
    _tables: Mapping[AccountName, Table] = field(repr=False, compare=False)
    _schema: str | None = field(repr=False, compare=False)

    def urls(self, spelling: Literal["plain", "spark"] = "plain") -> list[str]:
        """Return where the files are; `spark` spells it as Spark's connectors do: `file://`, `s3a://`, `abfss://`."""
        if spelling == "plain":
            return [file.url for file in self.files]
        return [self._for_spark(file) for file in self.files]

    def arrow(self) -> "pa.Table":
        """Return all rows, partition columns included, read with the accounts' own credentials. Raises Failed, Retryable."""
        import pyarrow as pa

        from penstock.sink.parquet.table import table_schema

        schema = self._known_schema()
        parts = map_concurrently(lambda file: self._tables[file.account].read(file, schema=schema), self.files)
        return pa.concat_tables(parts) if parts else table_schema(schema).empty_table()

    def by_file(self, *, schema: str) -> "Iterator[tuple[PublishedFile, pa.Table]]":
        """Yield each file with all of its rows, with the columns of `schema`. Raises as `arrow`."""
        tables = map_concurrently(lambda file: self._tables[file.account].read(file, schema=schema), self.files)
        yield from zip(self.files, tables, strict=True)

    def spark(self, spark: "SparkSession") -> "DataFrame":
        """Return the rows as a DataFrame. Spark reads the files itself, from a store with its own connector and credentials."""
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self._known_schema()))
        frames = [self._frame(spark, schema, table) for table in self._tables.values() if self._urls_in(table)]
        whole = frames[0] if frames else spark.createDataFrame([], schema)
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _frame(self, spark: "SparkSession", schema: "StructType", table: Table) -> "DataFrame":
        reader = spark.read.schema(schema).option("basePath", table.account.root_for_spark)
        return reader.parquet(*self._urls_in(table)).select(*map(quoted, schema.names))

    def _urls_in(self, table: Table) -> list[str]:
        return [self._for_spark(file) for file in self.files if file.account == table.name]

    def _for_spark(self, file: PublishedFile) -> str:
        return f"{self._tables[file.account].account.root_for_spark}/{file.name}"

    def _known_schema(self) -> str:
        if self._schema is None:
            raise Retryable(
                f"Nothing is published in sink {self.sink!r} yet, so its table has no columns.", remedy="Try again later."
            )
        return self._schema


def read_table(
    plan: DeliveryPlan,
    sink: str | None,
    accounts: Collection[str] | None,
    batch: int | None,
    *,
    added: bool,
    counted: bool,
) -> Reading:
    """Return what `penstock.read` describes. Called by it and by `Pipeline.read`."""
    chosen = table_of(plan, sink)
    tables = _asked_for(chosen.tables(), accounts)
    marks = cache(lambda: dict(zip(tables, map_concurrently(Table.marked_at, list(tables.values())), strict=True)))
    with closing(ledger_of(plan)) as ledger:
        decided = newest_whole(ledger, lambda entry: _is_shown(entry, chosen.name, marks(), everywhere=accounts is None))
        newest = newest_for_sink(ledger, chosen.name, decided)
        given = None if batch is None else backfilled_batch(ledger, chosen.name, BatchId(batch))
        entry = newest if batch is None else given or whole_batch(ledger, BatchId(batch), decided)
    if newest is not None:
        _require_present(newest, chosen.name, marks())
    if entry is None:
        return Reading(sink=chosen.name, as_of=None, files=(), _tables=tables, _schema=None)
    files = _added(entry, chosen.name, tables) if added else _until(entry, tables, counted=counted)
    if not added and newest is not None and entry.position < newest.position:
        _require_known(files, tables, as_of(entry).batch_id)
    return Reading(sink=chosen.name, as_of=as_of(entry), files=files, _tables=tables, _schema=_schema_in(entry, chosen))


def _schema_in(entry: Entry, chosen: "ParquetSink") -> str:
    from penstock.sink.quarantine import QuarantineSink

    return SCHEMA if isinstance(chosen, QuarantineSink) else decision_in(entry).schema_of(chosen.name)


def _asked_for(tables: Mapping[AccountName, Table], accounts: Collection[str] | None) -> Mapping[AccountName, Table]:
    unknown = next((name for name in accounts or () if name not in tables), None)
    if unknown is not None:
        raise Usage(f"The sink has no account {unknown!r}.", remedy=f"It has {', '.join(tables)}.")
    return {name: table for name, table in tables.items() if accounts is None or name in accounts}


def _is_shown(entry: Entry, sink: SinkName, marks: Mapping[AccountName, Position | None], *, everywhere: bool) -> bool:
    """Return whether the markers of all accounts that the decision holds rows for show it: any of them may be the last to do so.

    Markers are read after the ledger's tail: one that is read before it may be older than what the ledger says.
    """
    held = _accounts_of(entry, sink)
    if everywhere and not held <= marks.keys():
        return False
    return all((marks[account] or 0) >= entry.position for account in held & marks.keys())


def _require_present(newest: Entry, sink: SinkName, marks: Mapping[AccountName, Position | None]) -> None:
    """Raise Refused for an account that is not mounted, or is an older copy: its files would be missing silently."""
    totals = newest.summary.totals.get(sink, {})
    held = _accounts_of(newest, sink)
    for account, found in marks.items():
        rows = totals.get(account, Totals()).rows
        if rows:
            require_marker_not_older(found, rows, newest.position if account in held else None, sink=sink, account=account)


def _accounts_of(entry: Entry, sink: SinkName) -> Set[AccountName]:
    return {piece.account for piece in decision_in(entry).of_sink(sink)}


def _until(entry: Entry, tables: Mapping[AccountName, Table], *, counted: bool) -> tuple[PublishedFile, ...]:
    batch_id = decision_in(entry).batch.batch_id
    listed = map_concurrently(lambda table: table.files(entry.generation, batch_id, counted=counted), list(tables.values()))
    return tuple(file for files in listed for file in files)


def _added(entry: Entry, sink: SinkName, tables: Mapping[AccountName, Table]) -> tuple[PublishedFile, ...]:
    """Return the files of the decision. The manifests name the same ones, but the decision is at hand and retained for longer."""
    pieces = [piece for piece in decision_in(entry).of_sink(sink) if piece.account in tables]
    return tuple(tables[piece.account].file_of(piece) for piece in pieces)


def _require_known(files: tuple[PublishedFile, ...], tables: Mapping[AccountName, Table], batch_id: BatchId) -> None:
    """Raise Refused for a file that can hold rows of any batch. Files that an account began with are before all batches."""
    unknown = [file for file in files if file.batch_id is None]
    adopted = {name: tables[name].area.adopted() for name in {file.account for file in unknown}}
    sizes = {(name, file): size for name, begun in adopted.items() if begun for file, size in begun.sizes.items()}
    rewritten = next((file for file in unknown if sizes.get((file.account, file.name)) != file.size_bytes), None)
    if rewritten is not None:
        raise Refused(
            f"{rewritten.url} tells no batch: maintenance wrote it, or another program (existing_rows: keep). It may hold rows "
            f"that are later than batch {batch_id}.",
            remedy="Read the newest batch, or only the files that a batch added.",
        )
