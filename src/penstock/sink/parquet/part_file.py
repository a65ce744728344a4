"""`PartFile`, a Parquet file while it is being written, and the schema and notes that go into it."""

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.model import AccountName, SinkName, Staged, Totals
from penstock.errors import StageFailed, Usage
from penstock.protocols import SCHEMA_KEY
from penstock.sink.parquet.account import Upload
from penstock.sink.parquet.encoding import Encodings
from penstock.sink.parquet.splitting import FooterNotes

_SPARK_KEY = "org.apache.spark.sql.parquet.row.metadata"


class PartFile:
    """One Parquet file being written, in whole row groups. `finish` makes it durable. Used by one thread at a time."""

    def __init__(
        self,
        upload: Upload,
        *,
        account: AccountName,
        name: str,
        schema: "pa.Schema",
        compression: str,
        encodings: Encodings,
        notes: Mapping[str, str],
        footer_notes: FooterNotes | None = None,
    ) -> None:
        self.account = account
        self.name = name
        self._upload = upload
        self._schema = schema
        self._rows, self._digest = 0, 0
        self._footer_notes = footer_notes
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            pa.PythonFile(upload, mode="w"),
            schema,
            compression=compression,
            version="2.6",
            store_schema=False,
            metadata_collector=self._footers,
            **encodings.writer_options(),
        )
        self._writer.add_key_value_metadata(notes)

    @property
    def size_bytes(self) -> int:
        return self._upload.size_bytes

    def write(self, rows: "pa.Table", *, digest: int) -> None:
        """Append `rows` as one row group. Raises StageFailed."""
        try:
            stored = rows if rows.schema.types == self._schema.types else rows.cast(self._schema)
            self._writer.write_table(stored, row_group_size=len(stored))
        except pa.ArrowException as cause:
            raise StageFailed(
                f"Rows cannot be written as Parquet: {cause}.", remedy="Repair or cast the column in the transform."
            ) from cause
        self._rows += len(rows)
        self._digest += digest

    def close(self) -> None:
        self._writer.close()

    def finish(self, *, sink: SinkName, attempt: str) -> Staged:
        finished = self._upload.finish()
        noted = {} if self._footer_notes is None else self._footer_notes(self._footers[0], self._schema)
        totals = Totals(rows=self._rows, files=1, size_bytes=self.size_bytes) + Totals(digest=self._digest)
        return Staged(
            sink=sink,
            account=self.account,
            name=self.name,
            attempt=attempt,
            totals=totals,
            ref={**finished.ref, **noted},
            inline=finished.inline,
        )


def stored_schema(data: "pa.Schema") -> "pa.Schema":
    """Return the types that files store for rows of `data`, which Spark and all others can read. Raises Usage."""
    return pa.schema([field.with_type(_stored(field.type, field.name)) for field in data])


def _stored(kind: "pa.DataType", name: str) -> "pa.DataType":
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_null(kind) or pa.types.is_interval(kind):
        raise Usage(f"Column {name!r} has the type {kind}, which Parquet cannot hold.", remedy="Cast it in the transform.")
    return _optional_below(kind)


def _optional_below(kind: "pa.DataType") -> "pa.DataType":
    """Return `kind` with all struct fields nullable: where a struct is null, Arrow has nulls in its required fields, too."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_optional_below(field.type)).with_nullable(nullable=True) for field in kind])
    if pa.types.is_map(kind):
        keys, items = kind.key_field, kind.item_field
        return pa.map_(keys.with_type(_optional_below(keys.type)), items.with_type(_optional_below(items.type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_optional_below(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_optional_below(kind.value_type)))
    return kind


def notes_for(rows: "pa.Schema", data: "pa.Schema") -> Mapping[str, str]:
    """Return the footer's metadata: the schema of the rows for `verify`, and that of the columns in the file for Spark."""
    text = (rows.metadata or {}).get(SCHEMA_KEY)
    if text is None:
        return {}
    schema = json.loads(text)
    held = set(data.names)
    schema["fields"] = [field for field in schema["fields"] if field["name"] in held]
    return {SCHEMA_KEY.decode(): text.decode(), _SPARK_KEY: json.dumps(schema, separators=(",", ":"))}
