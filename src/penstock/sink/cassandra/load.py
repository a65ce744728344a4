"""Writes rows into a Cassandra table and reads those they replace: a few rows in each request, many requests at a time."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.core.deletes import split_deletes, without_deleting
from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.sink.cassandra.database import Connection, Row, StepRetry
from penstock.sink.cassandra.errors import connection_lost, is_too_large
from penstock.sink.cassandra.marker_store import Replaced
from penstock.sink.cassandra.statements import statements_of
from penstock.sink.cassandra.storage import STORAGES
from penstock.sink.table.publication import totals_of, totals_under_key
from penstock.sink.table.target import Target

READ = FaultPoint("cassandra.read", "The rows that a batch will replace or delete are read.")
WRITE = FaultPoint("cassandra.write", "Rows of a decided batch are written, or deleted, with its time stamp.")

WAVE_ROWS = 5_000
"""Rows written before failed writes are looked for, and before memory for more rows is taken."""
_TOGETHER_ROWS, _TOGETHER_BYTES = 100, 500_000
"""Limits of a request for rows of one partition."""
_MIXED_ROWS, _MIXED_BYTES = 10, 4_000
"""Limits of a request for rows of several partitions: a server warns of more than ten of them, and of more than 5 KiB."""
_ASKED_KEYS = 40


class BatchWriter(Protocol):
    """Writes the rows of one batch, each of another key."""

    def displaced(self) -> Replaced:
        """Count and hash what the table holds under the keys of the rows. Raises NotPublishedYet, PublishFailed."""
        ...

    def write(self, *, at_us: int) -> Totals:
        """Apply all rows, and return the totals of those that delete when every one was acknowledged.

        Raises NotPublishedYet, PublishFailed.
        """
        ...


class Writer:
    """A `BatchWriter` that writes to the table, and reads from it, with the retries of `StepRetry`.

    `rows` opens the rows, once for each method that is called; they have the columns of `schema`. `dated`: the columns by which
    a row that a batch displaces has an age.
    """

    def __init__(
        self,
        patience: StepRetry,
        target: Target,
        rows: Callable[[], Iterator["pa.RecordBatch"]],
        *,
        schema: "pa.Schema",
        dated: Sequence[str],
    ) -> None:
        self._patience, self._rows = patience, rows
        self._statements = statements_of(schema, target)
        self._schema = schema
        self._key = [schema.names.index(name) for name in target.key]
        self._partition = self._key[: len(target.partition)]
        self._table = target.table
        self._row_digest = target.row_digest
        self._deletes = target.deletes
        self._read_keys = self._statements.read_keys(dated)

    def displaced(self) -> Replaced:
        return sum((self._displaced(wave) for wave in _waves(self._rows())), Replaced())

    def write(self, *, at_us: int) -> Totals:
        return sum((self._write_wave(wave, at_us) for wave in _waves(self._rows())), Totals())

    def _write_wave(self, wave: "pa.RecordBatch", at_us: int) -> Totals:
        if not self._deletes:
            self._insert(wave, at_us)
            return Totals()
        rows, deletes = split_deletes(wave)
        deleting = rows.filter(deletes)
        self._delete(deleting, at_us)
        self._insert(without_deleting(wave), at_us)
        return totals_of(iter([deleting]), self._row_digest)

    def _insert(self, rows: "pa.RecordBatch", at_us: int) -> None:
        values = [(*row, at_us) for row in zip(*map(STORAGES.values_of, rows.columns), strict=True)]
        self._land(self._statements.insert, chunked(values, self._partition, row_bytes=_row_bytes(rows)))

    def _delete(self, rows: "pa.RecordBatch", at_us: int) -> None:
        keys = [(at_us, *key) for key in self._keys_of(rows)]
        partition = range(1, 1 + len(self._partition))
        self._land(self._statements.delete, chunked(keys, partition, row_bytes=_row_bytes(rows)))

    def _keys_of(self, rows: "pa.RecordBatch") -> Iterator[Row]:
        return zip(*(STORAGES.values_of(rows.column(at)) for at in self._key), strict=True)

    def _land(self, statement: str, chunks: list[Sequence[Row]]) -> None:
        left = chunks

        def step(connection: Connection) -> None:
            nonlocal left
            while left:
                with WRITE.around(error=connection_lost, lost=connection_lost):
                    failed = connection.write(statement, left)
                left = [part for chunk, error in failed for part in (_cut(chunk, 1) if is_too_large(error) else [chunk])]
                for chunk, error in failed:
                    if not (len(chunk) > 1 and is_too_large(error)):
                        raise error

        self._patience(step)

    def _displaced(self, wave: "pa.RecordBatch") -> Replaced:
        questions = _questions(self._keys_of(wave))

        def step(connection: Connection) -> Replaced:
            with READ.around(error=connection_lost, lost=connection_lost):
                answers = list(connection.ask(self._read_keys, questions))
            return self._replaced(answers)

        return self._patience(step)

    def _replaced(self, answers: Sequence[Sequence[Row]]) -> Replaced:
        width = len(self._schema)
        rows = ([row[:width] for row in answer] for answer in answers)
        written = (at_us or 0 for answer in answers for row in answer for at_us in row[width:])
        totals = totals_under_key(STORAGES.batches(filter(None, rows), self._schema), self._row_digest, table=self._table)
        return Replaced(totals=totals, newest_us=max(written, default=0))


def chunked(rows: Sequence[Row], partition: Sequence[int], *, row_bytes: int) -> list[Sequence[Row]]:
    """Split rows into requests: of one partition if it has many rows, else of few partitions."""
    together = max(1, min(_TOGETHER_ROWS, _TOGETHER_BYTES // row_bytes))
    mixed = max(1, min(_MIXED_ROWS, _MIXED_BYTES // row_bytes))
    partitions: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        partitions[tuple(row[at] for at in partition)].append(row)
    chunks = [own for found in partitions.values() if len(found) > mixed for own in _cut(found, together)]
    few = [row for found in partitions.values() if len(found) <= mixed for row in found]
    return chunks + _cut(few, mixed)


def _cut(rows: Sequence[Row], length: int) -> list[Sequence[Row]]:
    return [rows[start : start + length] for start in range(0, len(rows), length)]


def _waves(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        for start in range(0, batch.num_rows, WAVE_ROWS):
            part = batch.slice(start, WAVE_ROWS)
            if sum(other.num_rows for other in gathered) + part.num_rows > WAVE_ROWS:
                yield _joined(gathered)
                gathered = []
            gathered.append(part)
    if gathered:
        yield _joined(gathered)


def _joined(batches: Sequence["pa.RecordBatch"]) -> "pa.RecordBatch":
    [joined] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _row_bytes(rows: "pa.RecordBatch") -> int:
    return max(1, int(rows.nbytes // max(1, rows.num_rows)))


def _questions(keys: Iterator[Row]) -> list[Row]:
    """Group keys that differ only in their last column, to ask for them together."""
    alike: dict[Row, list[Any]] = defaultdict(list)
    for key in keys:
        alike[key[:-1]].append(key[-1])
    return [(*first, part) for first, last in alike.items() for part in _cut(last, _ASKED_KEYS)]
