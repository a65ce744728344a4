"""Staging one batch of an open delivery: input compared with Spark's plan before and after the staging pass."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyspark.sql import DataFrame

from penstock.checkpoint.input_listing import planned_input, require_unchanged
from penstock.commit.outcome import Delivered, Recovered, StagedBatch
from penstock.commit.publication import publications
from penstock.commit.recent_rows import rows_since
from penstock.commit.rewind import sinks_ahead
from penstock.core.dropped_rows import sum_of, total
from penstock.core.model import Batch, BatchId, Generation, Guarantee, OffsetRange, RowDigest, SinkName, SourceName
from penstock.core.topics import Evidence, FilesRead, InputFile
from penstock.core.unrouted import of_sources
from penstock.errors import InputChanged, StageFailed
from penstock.protocols import ALL_ROWS, Taken
from penstock.run.kafka_input import KafkaInput, with_beginnings
from penstock.run.path_columns import require_columns_of_paths_known
from penstock.run.query_facts import file_relations
from penstock.run.runtime import Runtime, now_ms
from penstock.stage.batch import StagedRows, stage_batch
from penstock.stage.path import BatchSize, is_small
from penstock.stage.quarantine import BadRecords
from penstock.stage.rules import NO_VIOLATIONS, Violations
from penstock.transform.apply import execute_as_noop

Inputs: TypeAlias = Mapping[SourceName, tuple[InputFile, ...]]
"""The input files of a batch, by file source."""


class Staging(NamedTuple):
    """A staged batch, the path that its rows took, and how many records were read, None where a source does not count them."""

    batch: StagedBatch
    path: str
    rows_read: int | None


_HOUR_MS = 3_600_000
_ARROW_PER_STAGED = 4
"""How many times larger rows are in Arrow than compressed in a sink, roughly: the staging pass checks the guess anyway."""


class BatchStager:
    """Stages the batches of one run, one at a time. `pause` waits that many seconds for a source, or raises to end the wait."""

    def __init__(self, runtime: Runtime, kafka: KafkaInput | None, *, pause: Callable[[float], None]) -> None:
        self._runtime, self._kafka, self._pause = runtime, kafka, pause
        self._previous: BatchSize | None = None
        self._planned_before: BatchId | None = None
        self._taken = ALL_ROWS

    def begin(self, *, planned_before: BatchId | None, recovered: Recovered, taken: Mapping[SinkName, Taken]) -> None:
        """Called once, when the delivery is open. `planned_before` is the batch that an earlier run of Spark planned last."""
        self._planned_before, self._taken = planned_before, taken
        self._previous = _size_of(recovered)

    def stage(
        self,
        rows: DataFrame,
        batch: Batch,
        *,
        generation: Generation,
        row_digest: RowDigest,
        without: Collection[SinkName] = frozenset(),
    ) -> Staging:
        """Stage `batch` for every sink but those of `without`, before it is decided.

        Raises InputChanged, InputLost, StageFailed, Retryable for columns of paths that Spark would mix up, what `pause` raises.
        """
        started_ms = now_ms()
        inputs = self._inputs(batch.batch_id)
        files = (file for listed in inputs.values() for file in listed)
        require_columns_of_paths_known(files, lambda: file_relations(rows))
        look = self._runtime.checkpoint.inputs
        if batch.batch_id == self._planned_before:
            self._require_planned_input(batch.batch_id, inputs)
        planned = planned_input(batch, inputs, look=look)
        seen = None if self._kafka is None else self._kafka.before(batch, wait=self._pause)
        bad = self._bad(rows, batch)  # I2: before rules are applied, which pass over what the registry does not know yet
        violations = self._violations(rows, batch, inputs)
        has_state = self._runtime.checkpoint.has_state()
        staged = stage_batch(
            rows,
            sinks=[sink for sink in self._runtime.row_sinks if sink.name not in without],
            generation=generation,
            batch_id=batch.batch_id,
            row_digest=row_digest,
            previous=None if has_state else self._previous,
            has_state=has_state,
            small_input=planned is not None and is_small(input_records=planned.records, input_bytes=planned.size_bytes),
            quarantine=self._runtime.quarantine,
            bad=bad,
            taken={sink: taken for sink, taken in self._taken.items() if sink not in without},
            violations=violations,
        )
        self._require_few_an_hour(staged)
        self._require_planned_input(batch.batch_id, inputs)
        if self._kafka is not None and seen is not None:
            seen = self._kafka.after(batch, seen)
        self._previous = staged.size
        whole = StagedBatch(
            pieces=staged.pieces,
            rows_in=staged.rows_in,
            schema=rows.schema.json(),
            stage_ms=now_ms() - started_ms,
            requests=staged.requests,
            evidence=Evidence(
                topics=() if seen is None else seen.topics, gaps=() if seen is None else seen.gaps, files=_listed(inputs)
            ),
            schemas={sink: each.schema for sink, each in self._taken.items() if sink not in without},
            dropped=sum_of(violations.dropped, staged.dropped),
            rows_read=_rows_read(violations, bad),
        )
        rows_read = None if planned is None or inputs else planned.records
        return Staging(batch=whole, path=staged.path.value, rows_read=rows_read)

    def _bad(self, rows: DataFrame, batch: Batch) -> BadRecords | None:
        """Return the records of the batch that cannot be decoded."""
        quarantine = self._runtime.quarantine
        return None if quarantine is None else quarantine.found(rows.sparkSession, self._ranges(batch))

    def _violations(self, rows: DataFrame, batch: Batch, inputs: Inputs) -> Violations:
        """Return the rows of the batch's input that do not meet a rule of their source."""
        rules = self._runtime.rules
        return NO_VIOLATIONS if rules is None else rules.violations(rows.sparkSession, self._ranges(batch), _urls(inputs))

    def _require_few_an_hour(self, staged: StagedRows) -> None:
        """Raise StageFailed if the batch and those of the last hour have more rows for the quarantine than it allows."""
        quarantine = self._runtime.quarantine
        rows = 0 if quarantine is None else staged.rows_of(quarantine.sink.name)
        if quarantine is None or not rows:
            return
        before = rows_since(self._runtime.ledger, quarantine.sink.name, now_ms() - _HOUR_MS)
        limit = quarantine.settings.max_rows_per_hour
        if before + rows > limit:
            raise StageFailed(
                f"{rows} rows of the batch are for the quarantine, and {before} went there in the last hour; "
                f"`quarantine: {{max_rows_per_hour: {limit}}}` allows fewer.",
                remedy="Nothing of the batch was decided. Correct what makes such rows, allow more, or start again later.",
            )

    def compute_state(self, rows: DataFrame, delivered: Delivered) -> None:
        """Compute a batch that was decided before, for Spark's state alone, from exactly the input that was delivered.

        Raises InputChanged for a file that has changed or is gone: Spark itself passes over a missing one.
        """
        batch_id, quarantine = delivered.batch.batch_id, self._runtime.quarantine
        inputs = self._inputs(batch_id)
        bad = self._kept_out_again(rows, delivered, inputs)
        execute_as_noop(rows)
        if quarantine is not None and bad is not None:
            quarantine.require_still_bad(bad)
        self._require_planned_input(batch_id, inputs, delivered=True)

    def _kept_out_again(self, rows: DataFrame, delivered: Delivered, inputs: Inputs) -> BadRecords | None:
        """Find what of a decided batch must not enter the state, without staging it, and return what cannot be decoded.

        Raises InputChanged if it is not as much as then: records can be decoded by now, or the rules were changed.
        """
        quarantine, rules, batch = self._runtime.quarantine, self._runtime.rules, delivered.batch
        ranges = self._ranges(batch)
        then = 0 if quarantine is None else self._put_aside(delivered, quarantine.sink.name)
        bad = None if quarantine is None else quarantine.found(rows.sparkSession, ranges, decided=then)
        dropped, aside = ({}, 0) if rules is None else rules.recount(rows.sparkSession, ranges, _urls(inputs))
        decided = of_sources(delivered.dropped)
        if dropped != decided:
            raise InputChanged(
                f"Batch {batch.batch_id} was decided with {total(decided)} rows dropped by rules, and now they drop "
                f"{total(dropped)}: the query's state would not fit the rows that were delivered.",
                remedy="Give `expect` the same rules as then, or begin a new checkpoint (`penstock adopt`).",
            )
        if quarantine is None or not (quarantine.sources or rules is not None):
            return None
        now = aside + (0 if bad is None else bad.rows.num_rows)
        if now > then or (now < then and not quarantine.puts_aside):  # sinks may have refused the others
            what = "cannot be decoded" if rules is None else "cannot be decoded or do not meet a rule"
            also = "" if rules is None else " and the pipeline the same rules"
            raise InputChanged(
                f"Batch {batch.batch_id} was decided with {then} records in quarantine, and now {now} of it {what}: "
                "the query's state would not fit the rows that were delivered.",
                remedy=f"Give the registry the same schemas as it had then{also}, or begin a new checkpoint (`penstock adopt`).",
            )
        return bad

    def _put_aside(self, delivered: Delivered, quarantine: SinkName) -> int:
        """Return how many rows of a decided batch are in the quarantine. One that is ahead has them of an earlier decision."""
        ledger, batch = self._runtime.ledger, delivered.batch
        tail = ledger.tail()
        if tail is None or quarantine not in sinks_ahead(tail.summary, batch.batch_id):
            put_aside = delivered.sinks.get(quarantine)
            return 0 if put_aside is None else put_aside.totals.rows
        shares = publications(ledger.newest_first(), quarantine)
        return next((share.totals.rows for share in shares if share.batch == batch and share.staged), 0)

    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Return the batch's offsets, for the quarantine and the rules; empty where there are none."""
        if self._runtime.quarantine is None and self._runtime.rules is None:
            return ()
        return with_beginnings(self._runtime.checkpoint, batch, self._runtime.source_names(batch.batch_id))

    def _require_planned_input(self, batch_id: BatchId, inputs: Inputs, *, delivered: bool = False) -> None:
        """Raise InputChanged if input files differ from Spark's plan (I4): it can be as old as an outage was long."""
        if self._runtime.demanded is Guarantee.EXACTLY_ONCE:
            require_unchanged(batch_id, inputs, look=self._runtime.checkpoint.inputs, delivered=delivered)

    def _inputs(self, batch_id: BatchId) -> Inputs:
        return self._runtime.checkpoint.input_files(batch_id, self._runtime.source_names(batch_id))


_LISTED_FILES = 1000
"""Most input files of a batch that its decision lists, some 60 bytes each: `penstock checkpoint rebuild` needs them."""


def _listed(inputs: Inputs) -> tuple[FilesRead, ...]:
    """Return what the decision says of the input files: those of every source that read some, or none if there are too many."""
    if sum(map(len, inputs.values())) > _LISTED_FILES:
        return ()
    return tuple(FilesRead(source=name, files=files) for name, files in inputs.items() if files)


def _rows_read(violations: Violations, bad: BadRecords | None) -> Mapping[SourceName, int]:
    """Return how many rows were read of each source with rules. Those that cannot be decoded came to no rule."""
    undecodable = Counter[str]() if bad is None else Counter(bad.rows["source"].to_pylist())
    return {source: rows + undecodable[source] for source, rows in violations.rows_read.items()}


def _urls(inputs: Inputs) -> Mapping[SourceName, Sequence[str]]:
    return {name: [file.path for file in files] for name, files in inputs.items()}


def _size_of(recovered: Recovered) -> BatchSize | None:
    """Guess the newest decided batch's size in Arrow from what was staged, so that the first batch of a run can be fast, too."""
    decision = recovered.decision
    if decision is None or decision.rows_in == 0:
        return None
    size_bytes = _ARROW_PER_STAGED * max(decision.totals_of(name).size_bytes for name in recovered.sinks)
    return BatchSize(rows=decision.rows_in, size_bytes=size_bytes, row_bytes=size_bytes // decision.rows_in, measured=False)
