"""`KeyedLakeSink`: rows replace those of a table with their keys, or are added where there are none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.model import AccountName, Entry, LedgerId, PipelineName, SinkKind, SweepCut, Waiting
from penstock.errors import Failed
from penstock.protocols import Signature
from penstock.sink.lake.row_validator import KeyValidator
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.spool import Spool, SpoolStager
from penstock.sink.spool.deletes import DeletesByKey
from penstock.sink.table.compared_load import described_write


class KeyedLakeSink(LakeSink):
    """A `LakeSink` that writes by `upsert` or `insert_if_absent`, or keeps history by key.

    Tasks stage rows in the spool, which keeps their order: pieces as decided, rows as written. Of several rows of a batch with
    one key, `upsert` takes the last, or with `sequence_by` the newest, and `insert_if_absent` the first. Publishing reads the
    rows from the spool twice, and holds the columns of the key in the memory of the driver.
    """

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, *, mode: WriteMode, spool: Spool, **others: Any) -> None:
        super().__init__(mode=mode, spool=spool, **others)
        self._rows = spool

    def describe(self) -> Mapping[str, str]:
        limit = self._rows.inline_limit_bytes
        return {
            "stage": f"in the ledger's entry up to {limit} bytes a task, else Arrow files in {self._rows.root.url}",
            "publish": f"files with rows ({described_write(self._mode)}) are rewritten; then one commit to the "
            f"{self._log.title}: files and marker",
            **self._rounds(),
        }

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        self._rows.prepare(pipeline)
        super().prepare(pipeline=pipeline, schema=schema)

    def claim(self, ledger_id: LedgerId) -> None:
        self._rows.claim(ledger_id)
        super().claim(ledger_id)

    def stager(self) -> SpoolStager:  # type: ignore[override]
        if self._uploads is None:
            raise Failed(f"Sink {self.name!r} was not prepared.", remedy="Call prepare() first.")
        self._begin_staging()
        mode = self._mode
        check = KeyValidator(table=self._log.uri, filled=mode.filled, files=self._settings)
        stager = replace(self._rows.stager(check), note=self._mode.noted())
        if not self._mode.deletes:
            return stager
        key = mode.filled if mode.keeps_history else mode.key
        return replace(stager, deletes=DeletesByKey(key=key, row_digest=self._settings.row_digest))

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove what dead attempts left in the spool, and staged files that a publication of an earlier batch did not move."""
        return [*self._rows.sweep(cut, dry_run=dry_run), *super().sweep(cut, dry_run=dry_run)]

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        yield from self._rows.waiting(pipeline)
        yield from super().waiting(account, pipeline=pipeline)

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        return self._rows.signatures(pipeline)

    def sign(self, entry: Entry) -> None:
        self._rows.sign(entry)

    def requests_sent(self) -> Mapping[str, int]:
        return self._rows.root.requests_sent()


def lake_sink(*, mode: WriteMode, spool: Spool, **others: Any) -> LakeSink:
    """Return the sink that delivers by `mode`. `others` are the arguments of `LakeSink`."""
    return (KeyedLakeSink if mode.is_by_key else LakeSink)(mode=mode, spool=spool, **others)
