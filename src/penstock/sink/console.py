"""The console sink: prints the first rows of each batch, for people. Delivers at least once: a restart can repeat a batch."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, TextIO

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.core.faults import FaultPoint
from penstock.core.model import (
    ONLY_ACCOUNT,
    Attempt,
    Finding,
    PipelineName,
    Publication,
    Published,
    SinkKind,
    SinkName,
    SinkReport,
    Staged,
    Totals,
)
from penstock.core.row_hash import digest
from penstock.errors import Retryable
from penstock.protocols import SinkDecisions, StageWriter
from penstock.sink.spool import Spool, SpooledSink, SpoolRoot, SpoolStager
from penstock.support.printable import printable

PRINT = FaultPoint("console.print", "The rows of a decided batch are printed.")

_WIDTH_OF_A_PIPE = 200


class ConsoleSink(SpooledSink):
    """Prints at most `rows` rows of each batch to `stream` (None: standard output).

    Values are cut to `truncate` characters (0: not cut), control characters are escaped. An attempt stages at most `rows` rows.
    """

    kind: ClassVar = SinkKind.IDEMPOTENT  # the nearest kind: printing a batch again harms nobody
    exactly_once: ClassVar = False  # printed rows can be neither taken back nor recognised

    def __init__(
        self, *, name: SinkName, spool: "SpoolRoot | str", rows: int = 20, truncate: int = 40, stream: TextIO | None = None
    ) -> None:
        super().__init__(name=name, spool=Spool(root=spool, sink=name))
        self._rows = rows
        self._truncate = truncate
        self._stream = stream
        self._printed = 0
        self._newest: tuple[Staged, ...] = ()

    def describe(self) -> Mapping[str, str]:
        return {
            "stage": f"the first {self._rows} rows of each task",
            "publish": f"print {self._rows} rows; again after a restart",
        }

    def check(self) -> Sequence[Finding]:
        return [Finding(subject=f"sink {self._name}", ok=True, message="prints rows, at least once")]

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:  # noqa: ARG002 - nothing to create
        self._spool.prepare(pipeline)

    def stager(self) -> "ConsoleStager":
        return ConsoleStager(spool=replace(self._spool.stager(), cache=None), rows=self._rows)  # little of a batch is printed

    def publish(self, publication: Publication) -> Published:
        """Print the batch unless this object has printed it. Raises StagedDataLost, Retryable."""
        if publication.position <= self._printed:
            return Published(totals=publication.totals, already=True)
        if publication.totals.rows:
            self._print(publication)
        self._printed = publication.position
        self._spool.discard(self._newest, pipeline=publication.pipeline)
        self._newest = publication.staged  # stays in the spool for the next start, which prints it again
        return Published(totals=publication.totals, already=False)

    def verify(self, decisions: SinkDecisions) -> SinkReport:  # noqa: ARG002
        """Return a report without accounts: nothing is stored, so there is nothing to compare."""
        return SinkReport(accounts={}, problems=())

    def _print(self, publication: Publication) -> None:
        pieces = [piece for piece in publication.staged if piece.ref]
        rows = (row for batch in self._spool.read(pieces, pipeline=publication.pipeline) for row in batch.to_pylist())
        shown = list(islice(rows, self._rows))
        title = f"{publication.pipeline} · {self._name} · batch {publication.batch.batch_id} · {publication.totals.rows} rows"
        table = Table()
        for name in shown[0] if shown else ():
            table.add_column(Text(printable(name, keep="")), overflow="fold")
        for row in shown:
            table.add_row(*(self._cell(value) for value in row.values()))
        stream = self._stream or sys.stdout
        console = Console(file=stream, width=None if stream.isatty() else _WIDTH_OF_A_PIPE, highlight=False)
        try:
            with PRINT.around(error=OSError, lost=OSError):
                console.print(Text(printable(title, keep="")), *([table] if shown else []), sep="\n")
        except OSError as cause:
            raise Retryable(
                f"Sink {self._name!r} cannot print: {cause}.", remedy="Give it a standard output that is open."
            ) from cause

    def _cell(self, value: Any) -> Text:
        text = printable("NULL" if value is None else str(value), keep="")
        return Text(text if not self._truncate or len(text) <= self._truncate else text[: self._truncate - 1] + "…")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleStager:
    """Stages the first `rows` rows of each attempt, and counts and digests all of them."""

    spool: SpoolStager
    rows: int

    def open(self, attempt: Attempt, schema: pa.Schema) -> StageWriter:
        return _HeadWriter(self.spool.open(attempt, schema), self, attempt)


class _HeadWriter:
    def __init__(self, head: StageWriter, stager: ConsoleStager, attempt: Attempt) -> None:
        self._head = head
        self._stager = stager
        self._attempt = attempt
        self._totals = Totals()

    def write(self, rows: pa.RecordBatch, *, hashes: pa.UInt64Array, accounts: pa.StringArray | None) -> None:
        """Stage rows until the limit is reached, and count all of them."""
        room = max(0, self._stager.rows - self._totals.rows)
        self._head.write(rows.slice(0, room), hashes=hashes.slice(0, room), accounts=accounts)
        self._totals += Totals(rows=rows.num_rows, digest=digest(hashes))

    def finish(self) -> Sequence[Staged]:
        """Return one piece that counts all rows and holds the first ones; none if there were no rows."""
        if not self._totals.rows:
            return []
        for piece in self._head.finish():
            return [replace(piece, totals=replace(self._totals, size_bytes=piece.totals.size_bytes))]
        token = self._attempt.token
        return [
            Staged(sink=self._stager.spool.sink, account=ONLY_ACCOUNT, name=token, attempt=token, totals=self._totals, inline=b"")
        ]

    def abandon(self) -> None:
        self._head.abandon()
