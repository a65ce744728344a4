"""`Table`, one account as its readers see it: the files up to some batch, where they are, and their rows."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.core.high_water_mark import Marker
from penstock.core.model import AccountName, BatchId, Generation, Position, SinkName, Staged
from penstock.errors import Failed
from penstock.sink.parquet.account import Account, Area, StoredFile
from penstock.sink.parquet.layout import is_parquet, order_of, owner_in
from penstock.sink.parquet.reading import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One file of a table; `url` is where readers find it: a path if the account is a directory, else the store's URL.

    `rows` is None if no manifest was read, or none knows the file; `batch_id` is None if the file's name tells no batch.
    """

    sink: SinkName
    account: AccountName
    url: str
    name: str
    rows: int | None
    size_bytes: int
    batch_id: BatchId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table in one account of a sink."""

    sink: SinkName
    name: AccountName
    account: Account
    area: Area
    owner: str
    """The owner in the names of the table's files. Another pipeline's files below the same root count their own batches."""

    def marker(self) -> Marker | None:
        """Return the account's own newest marker, None without one. Raises PublishFailed, Retryable, LedgerMismatch."""
        marker = self.area.marker()
        return None if marker is None or marker.account != self.name else marker

    def marked_at(self) -> Position | None:
        """Return the position up to which the account shows everything, by its marker; None without one. Raises as `marker`."""
        marker = self.marker()
        return None if marker is None else marker.position

    def files(self, generation: Generation, batch_id: BatchId, *, counted: bool) -> list[TableFile]:
        """Return the files of all decisions up to that batch of that generation, and files whose names tell no batch; by name.

        `counted` also reads every retained manifest for the number of rows, which takes a request each in a store.
        """
        manifests = self.area.manifests() if counted else ()
        rows = {file.name: file.rows for marker in manifests for file in marker.files or ()}
        shown = (
            self._file(file, rows.get(file.name))
            for file in self.area.files()
            if is_parquet(file.name)
            if (order := order_of(file.name)) is None
            or (owner_in(file.name) in {None, self.owner} and order <= (generation, batch_id))
        )
        return sorted(shown, key=lambda file: file.name)

    def file_of(self, piece: Staged) -> TableFile:
        return self._file(StoredFile(name=piece.name, size_bytes=piece.totals.size_bytes), piece.totals.rows)

    def read(self, file: TableFile, *, schema: str) -> "pa.Table":
        """Return all rows of `file` with the columns of Spark's `schema`. Raises Failed."""
        try:
            with self.area.open(file.name) as data:
                return read_table(data, name=file.name, schema=schema)
        except (pa.ArrowException, OSError, ValueError) as cause:
            reason = str(cause).split("\n", maxsplit=1)[0]
            raise Failed(
                f"{file.url} cannot be read: {reason}.",
                remedy="If maintenance removed or rewrote it meanwhile, ask for the files again; else run `penstock verify`.",
            ) from cause

    def _file(self, file: StoredFile, rows: int | None) -> TableFile:
        order = order_of(file.name)
        return TableFile(
            sink=self.sink,
            account=self.name,
            url=f"{self.account.root_for_readers}/{file.name}",
            name=file.name,
            rows=rows,
            size_bytes=file.size_bytes,
            batch_id=None if order is None else order[1],
        )
