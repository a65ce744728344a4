"""A coordinator, a ledger and a real sink, without Spark, whose rows, table and settings change between two starts."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count

from tests.unit.commit_bench import OPENED, QUERY, batch_of
from tests.unit.table_target import spark_schema

from penstock.commit.append import NO_PAUSE
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.commit.verification import LedgerDecisions
from penstock.core.codec.entry import decode_entry, encode_entry
from penstock.core.model import NEWEST_ROW_DIGEST, Attempt, RowDigest, new_nonce
from penstock.core.row_hash import row_hashes
from penstock.errors import Failed, PenstockError, Refused, Usage
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import SCHEMA_KEY
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.rig import as_batch

_STATEMENT = re.compile(r"``(.+?)``(?!`)|`([^`]+)`")
_NULL_COLUMN = re.compile(r"CAST\(NULL AS (\w+)\) AS `?([^`]+)`?")
_SIGNED_BY = re.compile(r"-[0-9a-f]{32}(?=\.id$)")
_MOST_STEPS = 6
_FOUND_BY_WRITING = (
    "does not give back what is written into it",
    "could not be read as those that are to come",
    "is too narrow, and `ALTER TABLE",
)
"""What a sink finds out by a trial, or by an ALTER TABLE that fails, which `check` does not make."""
_SPARK = {"int64": "long", "int32": "integer", "string": "string"}


class Killed(Failed):
    """What a driver that is killed between decision and publication would leave."""


class _Unpublished:
    """A sink whose driver is killed before it publishes, once it `is_dying`."""

    is_dying = False

    def __init__(self, sink):
        self._sink = sink

    def __getattr__(self, name):
        if name in {"home", "publish_within"}:  # it rides in no ledger's transaction
            raise AttributeError(name)
        return getattr(self._sink, name)

    def publish(self, publication):
        if not self.is_dying:
            return self._sink.publish(publication)
        raise Killed(f"Killed before position {publication.position}.", remedy="Start again.")

    def maintain_target(self, publication):
        """As those sinks do that maintain their target."""
        return self._sink.maintain_target(publication) if hasattr(self._sink, "maintain_target") else ()


class ChangingTable:
    """`columns`: the rows' columns and types, as the transform gives them. `settings`: of the sink.

    `rename_back`, `make_anew`: the statements of a person who is told to do that. `forgetting`: what pieces do not say in `ref`.
    `row_digest`: how the ledger hashes rows.
    """

    def __init__(self, bench, **settings):
        self.bench, self.columns, self.settings = bench, {"id": "long", "name": "string"}, settings
        self.store, self.clock, self.numbers = MemoryStore(), count(), count()
        self.first_columns = dict(self.columns)
        self.remedies = []
        self.forgetting, self.row_digest = frozenset(), NEWEST_ROW_DIGEST
        self.rename_back = None
        self.make_anew = ()

    # --- an upgrade

    def use_older_penstock(self):
        """Stage what comes as an older Penstock did: pieces do not say how they are written, and rows have the older hash."""
        self.forgetting, self.row_digest = {"write", "key"}, RowDigest.XXHASH64

    def upgrade(self, *, markers):
        """Leave ledger, spool and marker as that Penstock wrote them: in its formats, and without an identity."""
        for key in [*self.store.keys("entries/")]:
            entry = decode_entry(self.store.get(key))
            older = encode_entry(replace(entry, summary=replace(entry.summary, ledger_id=None, row_digest=self.row_digest)))
            assert json.loads(older)["version"] <= 2
            self.store.put(key, older)
        for signature in self.bench.rig.directory.rglob("ledger-*.id"):
            signature.rename(signature.with_name(_SIGNED_BY.sub("", signature.name)))
        self.bench.rig.sql(f"UPDATE {markers} SET ledger_id = NULL, format_version = 1")
        self.forgetting = frozenset()

    # --- the pipeline

    def deliver(self, *rows, killed=False):
        """Start, and deliver one batch; a driver that is killed leaves its decision outstanding."""
        sink, coordinator = self._start(schema=spark_schema(**self.columns), killed=killed)
        number = next(self.numbers)
        try:
            coordinator.deliver(batch_of(number, query=QUERY), partial(self._staged, sink, number=number, rows=rows))
            assert not killed
        except Killed:
            assert killed
        finally:
            sink.close()

    def deliver_in_one_run(self, *batches, altered_before=None):
        """Start once, deliver a batch after the other, and end. `altered_before`: a person's statements by the batch's place."""
        sink, coordinator = self._start(schema=spark_schema(**self.columns))
        try:
            for at, rows in enumerate(batches):
                for statement in (altered_before or {}).get(at, ()):
                    self.bench.rig.sql(statement)
                number = next(self.numbers)
                coordinator.deliver(batch_of(number, query=QUERY), partial(self._staged, sink, number=number, rows=rows))
        finally:
            sink.close()

    def start(self):
        """Start and recover, and end without a batch."""
        sink, _ = self._start(schema=spark_schema(**self.columns))
        sink.close()

    def recover(self):
        """As `penstock recover`."""
        sink, _ = self._start(schema=None)
        sink.close()

    def _start(self, *, schema, killed=False):
        sink = self.bench.rig.make(**self.settings)
        ledger = LogLedger(self.store, pipeline=PIPELINE)
        sink.use_row_digest(self.row_digest)
        used = _Unpublished(sink)
        coordinator = Coordinator(pipeline=PIPELINE, ledger=ledger, sinks=[used], now_ms=self.clock.__next__, retrying=NO_PAUSE)
        try:
            self._prepare(sink, schema)
            coordinator.open(OPENED)
            used.is_dying = killed
        except BaseException:
            sink.close()
            raise
        return sink, coordinator

    def _prepare(self, sink, schema):
        """Prepare as a start does. `penstock check`, asked just before, must have refused the same, and nothing else."""
        checked = None if schema is None else self._checked(schema)
        try:
            sink.prepare(pipeline=PIPELINE, schema=schema)
        except (Refused, Usage) as refused:
            if schema is None or checked is not None or any(tried in refused.message for tried in _FOUND_BY_WRITING):
                raise
            raise AssertionError("check said nothing of that") from refused
        assert checked is None, f"check refuses what starts: {checked}"

    def _checked(self, schema):
        """What `penstock check` refuses in rows of `schema`, None if nothing."""
        sink = self.bench.rig.make(**self.settings)
        sink.use_row_digest(self.row_digest)
        try:
            sink.require_schema_accepted(pipeline=PIPELINE, schema=schema)
        except (Refused, Usage) as refused:
            return refused
        finally:
            sink.close()
        return None

    def _staged(self, sink, generation, number, rows):
        attempt = Attempt(generation=generation, batch_id=number, partition=0, task_attempt=0, nonce=new_nonce())
        schema = spark_schema(**self.columns)
        batch = as_batch([dict(zip(self.columns, row, strict=True)) for row in rows], schema)
        writer = sink.stager().open(attempt, batch.schema.with_metadata({SCHEMA_KEY: schema.encode()}))  # as tasks do
        if rows:
            writer.write(batch, hashes=row_hashes(batch, self.row_digest), accounts=None)
        pieces = [
            replace(piece, ref={k: v for k, v in piece.ref.items() if k not in self.forgetting}) for piece in writer.finish()
        ]
        return StagedBatch(pieces=tuple(pieces), rows_in=len(rows), schema=schema)

    # --- the person

    def started_by_the_book(self):
        """Start, and carry out to the letter what each refusal says, until it starts. Raises if that leads nowhere."""
        for _ in range(_MOST_STEPS):
            try:
                return self.start()
            except PenstockError as refusal:
                self._carry_out(refusal)
        raise AssertionError(f"never started: {self.remedies}")

    def _carry_out(self, refusal):
        remedy = refusal.remedy
        self.remedies.append(f"{type(refusal).__name__}: {refusal.message} -> {remedy}")
        if "rename it back" in remedy and self.rename_back is not None:
            self.bench.rig.sql(self.rename_back)
            self.rename_back = None
            remedy = remedy.partition("rename it back")[2]
        elif "create the table again" in remedy.lower():
            for statement in self.make_anew:
                self.bench.rig.sql(statement)
        if "Give a column that was renamed its old name" in remedy and self.rename_back is not None:
            self.bench.rig.sql(self.rename_back)
            self.rename_back, self.columns = None, dict(self.first_columns)
            return
        if "cast the column in the transform" in remedy.lower():
            name = re.match(r"Column '(\w+)'", refusal.message)[1]
            self.columns[name] = self.first_columns[name]
            return
        for in_two, in_one in _STATEMENT.findall(remedy):
            self._do(in_two or in_one, refusal)
        self._change_the_transform(refusal)

    def _do(self, step, refusal):
        if step == "penstock recover":
            self._recover_by_the_book(refusal)
        elif null := _NULL_COLUMN.fullmatch(step):
            self.columns[null[2]] = null[1].lower()
        elif step in {"schema_changes: add", "schema_changes: widen"} or step.startswith("exclude: ["):
            pass  # the other of two ways
        elif step.startswith("ALTER TABLE"):
            self.bench.rig.sql(step)
        else:
            raise AssertionError(f"nobody knows how to do {step!r}: {self.remedies[-1]}")

    def _change_the_transform(self, refusal):
        if "Cast it in the transform to what it was" in refusal.remedy:
            name, kind = re.search(r"Column '(\w+)' was (\w+)", refusal.message).groups()
            self.columns[name] = _SPARK[kind]
        elif "Keep the order" in refusal.remedy:
            order = re.search(r"came in the order ([\w, ]+) and", refusal.message)[1].split(", ")
            self.columns = {name: self.columns[name] for name in order} | self.columns

    def _recover_by_the_book(self, refusal):
        try:
            self.recover()
        except PenstockError as again:
            if again.message == refusal.message:
                raise
            self._carry_out(again)

    @property
    def name(self):
        """The table, as the person's statements name it."""
        return getattr(self.bench.rig, "table", "t")

    def alter(self, change):
        """Have a person run `ALTER TABLE` with this change."""
        self.bench.rig.sql(f"ALTER TABLE {self.name} {change}")

    # --- what is there

    def content(self, *names):
        """The values of these columns, whatever others there are."""
        return Counter(tuple(row) for row in self.bench.rig.sql(f"SELECT {', '.join(names)} FROM {self.name}"))

    def verify(self):
        """The sink's own report, against the ledger's totals."""
        ledger, sink = LogLedger(self.store, pipeline=PIPELINE), self.bench.rig.make(**self.settings)
        sink.use_row_digest(self.row_digest)
        sink.prepare(pipeline=PIPELINE, schema=None)
        try:
            return sink.verify(LedgerDecisions(ledger, sink.name, tail=ledger.tail()))
        finally:
            sink.close()
