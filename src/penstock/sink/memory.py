"""The memory sink: rows in the memory of this process, for tests and notebooks; `memory_table(name)` returns them.

Delivery is exactly once within one process: a repeated publication is recognised. The rows are lost when the process ends. A new
process starts with an empty table, which lacks all earlier batches, and `Pipeline.verify` in that process reports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    ONLY_ACCOUNT,
    AccountReport,
    Batch,
    Finding,
    PipelineName,
    Position,
    Problem,
    Publication,
    Published,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    Totals,
)
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import ContentConflict, Failed, LedgerMismatch, Usage
from penstock.protocols import SinkDecisions
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpooledSink, SpoolRoot, SpoolStager
from penstock.spark.schema import arrow_schema

Write: TypeAlias = Literal["append", "replace"]
_Key: TypeAlias = tuple[str, PipelineName, SinkName]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What one sink of one pipeline shows. It is replaced as a whole, so that readers see whole batches."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...] = ()
    position: int = 0
    published: Mapping[Position, tuple[Batch, Totals]] = field(default_factory=dict)


_lock = Lock()
_kept: dict[_Key, _Content] = {}
_newest: dict[str, _Key] = {}


def memory_table(name: str) -> pa.Table:
    """Return the rows of memory sink `name`; among several pipelines, the last started counts. Raises Usage if there is none."""
    with _lock:
        key = _newest.get(name)
        kept = None if key is None else _kept.get(key)
    if kept is None:
        known = ", ".join(sorted(_newest)) or "none"
        raise Usage(
            f"No memory sink {name!r} was filled in this process; there is: {known}.", remedy="Run the pipeline here first."
        )
    return pa.Table.from_batches(kept.batches, kept.schema)


def clear_memory_table(name: str) -> None:
    """Forget the rows and the publications of every memory sink `name`."""
    with _lock:
        _newest.pop(name, None)
        for key in [key for key in _kept if key[2] == name]:
            del _kept[key]


class MemorySink(SpooledSink):
    """Stores rows under its name. `write` is `append`, or `replace` if each batch is the whole result (complete mode)."""

    kind: ClassVar = SinkKind.TRANSACTIONAL  # within one process
    exactly_once: ClassVar = True  # for as long as the process lives

    def __init__(
        self, *, name: SinkName, spool: "SpoolRoot | str", write: Write = "append", inline_limit_bytes: int = INLINE_LIMIT_BYTES
    ) -> None:
        super().__init__(name=name, spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes))
        self._write = write
        self._key: _Key | None = None
        self._row_digest: RowDigest = NEWEST_ROW_DIGEST

    def use_row_digest(self, row_digest: RowDigest) -> None:
        self._row_digest = row_digest

    def describe(self) -> Mapping[str, str]:
        return {
            "stage": "inline in the decision, else Arrow files in the spool",
            "publish": "rows kept in this process, lost at exit",
        }

    def check(self) -> Sequence[Finding]:
        return [Finding(subject=f"sink {self._name}", ok=True, message="rows live in the driver's memory and are lost at exit")]

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create the spool, and an empty table unless this process has one. Raises Failed if the spool cannot be created."""
        self._spool.prepare(pipeline)
        self._key = (self._spool.root.url, pipeline, self._name)
        rows = pa.schema([]) if schema is None else arrow_schema(schema)
        with _lock:
            found = _kept.setdefault(self._key, _Content(schema=rows))
            if not found.batches and schema is not None:
                _kept[self._key] = replace(found, schema=rows)
            _newest[self._name] = self._key

    def stager(self) -> SpoolStager:
        return self._spool.stager()

    def publish(self, publication: Publication) -> Published:
        batches = () if _kept[self._prepared()].position >= publication.position else tuple(self._read(publication))
        with _lock:
            published = self._show(publication, batches)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the rows of this process with the decisions. Without rows in this process, the report has no accounts."""
        kept = self._found(decisions)
        if kept is None:  # the rows are, or were, in the memory of the driver's process
            return SinkReport(accounts={}, problems=())
        position = max(Position(kept.position), decisions.published_at)
        wanted = _content(decisions.totals(position).get(ONLY_ACCOUNT, Totals()))
        found = Totals()
        for batch in kept.batches:
            found += Totals(rows=batch.num_rows, digest=digest(row_hashes(batch, self._row_digest)))
        newest, problems = None, []
        for publication in decisions.publications(position):
            newest = newest or publication
            if publication.position <= kept.position:
                break
            if publication.staged:
                batch_id = publication.batch.batch_id
                problems.append(Problem(message=f"Batch {batch_id} is decided but not shown in this process.", batch_id=batch_id))
        if self._write == "replace" and newest is not None:
            wanted = _content(newest.totals)
        account = AccountReport(expected=wanted, found=found)
        if not account.ok and not problems:
            problems = [Problem(message=f"This process shows {found.rows} rows, the ledger decided {wanted.rows}.")]
        return SinkReport(accounts={ONLY_ACCOUNT: account}, problems=tuple(problems), as_of=position)

    # --- steps

    def _found(self, decisions: SinkDecisions) -> _Content | None:
        """Return the rows of this process, also if another object published them; None if there are none."""
        newest = next(decisions.publications(), None)
        if self._key is not None or newest is None:
            return None if self._key is None else _kept.get(self._key)
        return _kept.get((self._spool.root.url, newest.pipeline, self._name))

    def _prepared(self) -> _Key:
        if self._key is None:
            raise Failed(f"Sink {self._name!r} was not prepared.", remedy="Call prepare() first.")
        return self._key

    def _read(self, publication: Publication) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self._spool.read(publication.staged, pipeline=publication.pipeline):
            rows += batch.num_rows
            yield batch
        if rows != publication.totals.rows:
            raise ContentConflict(
                f"Batch {publication.batch.batch_id} has {publication.totals.rows} rows, the spool {rows}.",
                remedy="Restore the spool and start again.",
            )

    def _show(self, publication: Publication, batches: tuple[pa.RecordBatch, ...]) -> Published:
        key = self._prepared()
        kept = _kept[key]
        position = publication.position
        identity = (publication.batch, _content(publication.totals))
        if kept.position >= position:
            if publication.staged and kept.published.get(position) != identity:
                raise LedgerMismatch(
                    f"Memory sink {publication.sink!r} holds rows of another ledger, with another batch at position {position}.",
                    remedy=f"Call penstock.clear_memory_table({publication.sink!r}) to start anew in this process.",
                )
            return Published(totals=publication.totals, already=True)
        fresh = self._write == "replace"
        _kept[key] = _Content(
            schema=batches[0].schema if batches else kept.schema,
            batches=batches if fresh else kept.batches + batches,
            position=position,
            published={**kept.published, position: identity},
        )
        return Published(totals=publication.totals, already=False)


def _content(totals: Totals) -> Totals:
    return Totals(rows=totals.rows, digest=totals.digest)
