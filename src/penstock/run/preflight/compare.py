"""Compares a pipeline file with the run that delivered its newest batch: by its description, the ledger and the checkpoint."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property

import penstock
from penstock.checkpoint.entries import OffsetsEntry, Unreadable
from penstock.checkpoint.source_log import uncompacted_entries
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.state import operator_names
from penstock.commit.identity import are_places
from penstock.commit.publication import continued_decision, decision_in
from penstock.core.bad_record import NAME
from penstock.core.model import AccountName, Decision, Entry, SinkName, SourceName, Summary
from penstock.errors import CheckpointDamaged, PenstockError, Refused, SourcesChanged
from penstock.protocols import Ledger, Sink
from penstock.run.assembly import DeliveryPlan, checkpoint_of, quarantine_of, sink_of
from penstock.run.continuation import require_continuation, require_sources
from penstock.run.ledger_match import require_present
from penstock.run.named_sources import has_own_name
from penstock.run.preflight.change import PipelineChange, Preflight, Ruling, Verdict, breaking, safe, worst_first
from penstock.run.preflight.description import RunDescription, Values, describe, recorded_run
from penstock.run.preflight.named_rules import NamedSources, names_ruling
from penstock.run.preflight.query_rules import (
    COLUMNS,
    QueryNow,
    StateThen,
    columns_ruling,
    query_ruling,
    replay_ruling,
    state_changes,
    version_ruling,
)
from penstock.run.preflight.sink_rules import (
    Unsettled,
    accounts_of,
    added_account,
    added_sink,
    is_place,
    is_place_of_quarantine,
    moved_ruling,
    moved_unsettled,
    other_endpoint,
    other_kind,
    other_table,
    removed_account,
    removed_sink,
    sink_ruling,
    spool_of_notes,
)
from penstock.run.preflight.source_rules import added_ruling, removed_ruling, source_ruling
from penstock.spec.endpoint import HIDDEN_PATH
from penstock.spec.http import HTTP
from penstock.spec.pipeline import PipelineSettings
from penstock.support.secret import MASK, looks_secret
from penstock.transform.state_held import StateHeld


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBySpark:
    """What only Spark knows of a query: the order of its sources in the plan, what it keeps, its columns, and Spark's version."""

    order: tuple[SourceName, ...]
    state: tuple[StateHeld, ...]
    version: str
    schema: str
    """The JSON of the rows' schema."""


def compare(
    settings: PipelineSettings, plan: DeliveryPlan, ledger: Ledger, *, summary: Summary, seen: SeenBySpark | None = None
) -> Preflight:
    """Return how the file differs from the run that decided the ledger's newest batch. Changes nothing.

    Without `seen` only what needs no Spark is compared. Empty where nothing was decided, or another checkpoint was adopted since.
    """
    decided = continued_decision(ledger, summary)
    newest = None if decided is None or summary.decided_at is None else ledger.read(summary.decided_at)
    if newest is None:
        return Preflight()
    return _Comparison(settings=settings, plan=plan, ledger=ledger, summary=summary, newest=newest, seen=seen).preflight()


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """One comparison with the decision in the entry `newest`."""

    settings: PipelineSettings
    plan: DeliveryPlan
    ledger: Ledger
    summary: Summary
    newest: Entry
    seen: SeenBySpark | None

    @cached_property
    def _last(self) -> RunDescription | None:
        return recorded_run(self.settings.home, self.newest.generation, ledger_id=self.summary.ledger_id)

    @cached_property
    def _now(self) -> RunDescription:
        seen = self.seen
        versions = versions_of(None if seen is None else seen.version)
        state = None if seen is None else seen.state
        return describe(self.settings, modules=self.plan.modules, versions=versions, state=state)

    @property
    def _decision(self) -> Decision:
        return decision_in(self.newest)

    @cached_property
    def _checkpoint(self) -> SparkCheckpoint:
        return checkpoint_of(self.plan)

    def preflight(self) -> Preflight:
        changes = [*self._sources(), *self._query(), *self._state(), *self._columns(), *self._versions(), *self._sinks()]
        return Preflight(
            last_run=self.newest.generation,
            described=self._last is not None,
            changes=worst_first(changes),
            uncompared=() if self._last is None else tuple(_uncompared(self._last, self._now)),
        )

    # --- what the checkpoint holds

    @cached_property
    def _entry(self) -> OffsetsEntry | None:
        planned = self._checkpoint.latest_offsets_id()
        with suppress(CheckpointDamaged):  # the checks of the checkpoint itself tell that
            return None if planned is None else self._checkpoint.offsets(planned)
        return None

    @cached_property
    def _then(self) -> StateThen:
        stateful = self._checkpoint.has_state()
        kinds = None
        if stateful and (self._last is None or self._last.state is None):
            with suppress(Unreadable):
                kinds = operator_names(self._checkpoint.files)
        fixed = {} if self._entry is None else self._entry.confs
        return StateThen(stateful=stateful, fixed=fixed, kinds=kinds, uncompacted=uncompacted_entries(self._checkpoint.files))

    # --- the parts

    def _sources(self) -> Iterator[PipelineChange]:
        read = {each.source.partition("#")[0] for each in self._decision.batch.offsets}
        now = self._now.sources
        before = self._undescribed(read, now) if self._last is None else self._last.sources
        yield from self._keys()
        gone = sorted(before.keys() - now.keys())
        for name in gone:
            yield PipelineChange.by(self._removed(name, was_read=name in read), f"sources.{name}", before="", now=None)
        for name in sorted(now.keys() - before.keys()):
            ruling = self._added(name, instead_of=next((each for each in gone if each in read), None))
            yield PipelineChange.by(ruling, f"sources.{name}", before=None, now="")
        if before.keys() == now.keys() or self._named is not None:
            yield from self._order()
        for name, values in self._both(before, now):
            for key, old, new in _different(values, now[name]):
                ruling = self._of_replay(key, source_ruling(key, values, now[name], stateful=self._then.stateful))
                yield PipelineChange.by(ruling, f"sources.{name}.{key}", before=old, now=new)

    def _undescribed(self, read: Collection[str], now: Mapping[str, Values]) -> Mapping[str, Values | None]:
        """Return the sources of a run that left no description, by the names that the newest batch has.

        A query in code that had no names has their places instead: whether these are as many as now, `_order` tells.
        """
        unnamed = are_places([each.source for each in self._decision.batch.offsets]) and self._named is None
        return dict.fromkeys(now if unnamed else read, None)

    def _of_replay(self, key: str, ruling: Ruling) -> Ruling:
        """Return what a change means that would be safe, where Spark computes the newest batch once more for its state."""
        committed, newest = self._checkpoint.latest_commit_id(), self._decision.batch.batch_id
        if ruling.verdict is not Verdict.SAFE or not self._then.stateful or (committed is not None and committed >= newest):
            return ruling
        return replay_ruling(key, newest) or ruling

    @cached_property
    def _named(self) -> NamedSources | None:
        """What the sources mean if both the checkpoint and the file have them by name."""
        if self._entry is None or not self._entry.named or not self.settings.named_sources:
            return None
        if self.seen is None:
            return NamedSources(problems=())
        decided = self._decision.batch
        return NamedSources.of_plan(self.ledger, self._checkpoint, self._entry, decided=decided, order=self.seen.order)

    def _keys(self) -> Iterator[PipelineChange]:
        """Yield whether the file wants names of sources that the checkpoint does not have, or the other way round."""
        if self._entry is None or self._entry.named is self.settings.named_sources:
            return
        decided = [each.source for each in self._decision.batch.offsets]
        ruling = names_ruling(named=self.settings.named_sources, can_migrate=has_own_name(self._entry, decided))
        before, now = (str(value).lower() for value in (self._entry.named, self.settings.named_sources))
        yield PipelineChange.by(ruling, "named_sources", before=before, now=now)

    def _removed(self, name: str, *, was_read: bool) -> Ruling:
        named = self._named
        return removed_ruling(was_read=was_read) if named is None else named.removed(name, was_read=was_read)

    def _added(self, name: str, *, instead_of: str | None) -> Ruling:
        named, is_read = self._named, self._is_read(name)
        return added_ruling(is_read=is_read) if named is None else named.added(name, is_read=is_read, instead_of=instead_of)

    def _is_read(self, name: str) -> bool | None:
        return None if self.seen is None else name in {each.partition("#")[0] for each in self.seen.order}

    def _order(self) -> Iterator[PipelineChange]:
        if self.seen is None or self._entry is None:
            return
        ruling = None if self._named is None else self._named.order()
        if not self._entry.named:
            try:
                require_sources(self.ledger, self._checkpoint, self.seen.order, named=None)
            except SourcesChanged as changed:
                ruling = breaking(changed.message, action=changed.remedy)
        if ruling is not None:
            before = ", ".join(each.source for each in self._decision.batch.offsets)
            now = ", ".join(dict.fromkeys(self.seen.order))
            yield PipelineChange.by(ruling, "sources in their order", before=before, now=now)

    @staticmethod
    def _both(before: Mapping[str, Values | None], now: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
        yield from ((name, values) for name, values in before.items() if name in now and values is not None)

    def _query(self) -> Iterator[PipelineChange]:
        now = self._query_now()
        before = self._fixed() if self._last is None else self._last.query
        for key, old, new in _different(before, now.values):
            if self._last is not None or (key in before and key in now.values):
                yield PipelineChange.by(self._query_ruling(key, before, now), key, before=old, now=new)

    def _fixed(self) -> Values:
        """Return the settings that the checkpoint fixes, by their keys in the file."""
        return {f"spark.conf.{key}": text for key, text in self._then.fixed.items()}

    def _query_now(self) -> QueryNow:
        return QueryNow(
            values=self._now.query,
            state=self._now.state,
            upserts=all(
                getattr(sink, "write", None) in {"upsert", "merge"} or getattr(sink, "mode", None) == "keyed"
                for sink in self.settings.sinks.values()
            ),
        )

    def _query_ruling(self, key: str, before: Values, now: QueryNow) -> Ruling:
        if key.startswith("checkpoint."):
            return self._checkpoint_moved()
        if key.startswith("spool."):
            return self._spool_moved()
        if is_place_of_quarantine(key) and "quarantine.url" in before:
            return self._quarantine_moved(is_there="quarantine.url" in now.values)
        return self._of_replay(key, query_ruling(key, before, now, self._then))

    def _spool_moved(self) -> Ruling:
        if self._unsettled is not None:
            return moved_unsettled(self._unsettled.batch_id)
        noting = next((name for name, sink in self.settings.sinks.items() if isinstance(sink, HTTP)), None)
        return safe("It holds from the next batch on.") if noting is None else spool_of_notes(noting)

    def _quarantine_moved(self, *, is_there: bool) -> Ruling:
        """Return what the quarantine means that is elsewhere, or gone: it is a sink like others."""
        return self._moved(NAME) if is_there else removed_sink(NAME, self._unsettled)

    def _checkpoint_moved(self) -> Ruling:
        try:
            require_continuation(self.summary, self._checkpoint)
        except Refused as refused:
            return breaking(refused.message, action=refused.remedy)
        return safe("The checkpoint there continues the ledger.")

    def _state(self) -> Iterator[PipelineChange]:
        before = None if self._last is None else self._last.state
        yield from state_changes(
            before, self._query_now(), self._then, same_spark=self._is_same_spark(), gone=self._gone_columns()
        )

    def _is_same_spark(self) -> bool:
        """Return whether plans can be compared by their text, which changes from one version to the next."""
        return self._last is not None and _minor(self._last.versions.get("spark")) == _minor(self._now.versions.get("spark"))

    def _gone_columns(self) -> frozenset[str]:
        """Return the words of the sources' old schemas that the new ones lack: columns that are gone, or have another name."""
        before = {} if self._last is None else self._last.sources
        both = list(self._both(before, self._now.sources))
        old = {word for _, values in both for word in _words(values.get("schema", ""))}
        return frozenset(old.difference(*(_words(self._now.sources[name].get("schema", "")) for name, _ in both)))

    def _columns(self) -> Iterator[PipelineChange]:
        """Yield how the rows differ from those of the newest batch, whose schema the ledger has."""
        if self.seen is None or not self._decision.rows_in:
            return
        before, now = _columns_in(self._decision.schema), _columns_in(self.seen.schema)
        if before != now:
            yield PipelineChange.by(columns_ruling(None), COLUMNS, before=", ".join(before), now=", ".join(now))

    def _versions(self) -> Iterator[PipelineChange]:
        before = {} if self._last is None else self._last.versions
        for program, old in before.items():
            new = self._now.versions.get(program)
            if new is not None and new != old:
                ruling = version_ruling(program, old, new, self._then)
                yield PipelineChange.by(ruling, f"version of {program}", before=old, now=new)

    # --- the sinks

    @cached_property
    def _unsettled(self) -> Unsettled | None:
        if self.newest.position == self.summary.published_at:
            return None
        owed = frozenset(piece.sink for piece in self._decision.staged)
        return Unsettled(batch_id=self._decision.batch.batch_id, sinks=owed)

    def _sinks(self) -> Iterator[PipelineChange]:
        now = self._now.sinks
        before: Mapping[str, Values | None] = (
            dict.fromkeys(sorted({piece.sink for piece in self._decision.staged} - {"quarantine"}), None)
            if self._last is None
            else self._last.sinks
        )
        for name in sorted(before.keys() - now.keys()):
            yield PipelineChange.by(removed_sink(name, self._unsettled), f"sinks.{name}", before="", now=None)
        for name in sorted(now.keys() - before.keys()) if self._last is not None else ():
            gone = {old: values for old, values in before.items() if old not in now and values is not None}
            yield PipelineChange.by(added_sink(name, now[name], gone), f"sinks.{name}", before=None, now="")
        for name, values in self._both(before, now):
            yield from self._sink(name, values, now[name])

    def _sink(self, name: str, before: Values, now: Values) -> Iterator[PipelineChange]:
        yield from self._accounts(name, before, now)
        joined = accounts_of(before) ^ accounts_of(now)
        moved: Ruling | None = None
        for key, old, new in _different(before, now):
            if any(key.startswith(f"accounts.{account}.") for account in joined):
                continue
            if before.get("type") != now.get("type") and key != "type":
                continue
            if self._is_filled(name) and _names_other(key, before, now):
                ruling = other_table(name, old)
            elif is_place(key):
                moved = ruling = moved or self._moved(name, was=before)
            else:
                has_rows = self._rows_decided(name) > 0
                ruling = sink_ruling(key, before, now, name=name, unsettled=self._unsettled, has_rows=has_rows)
            yield PipelineChange.by(ruling, f"sinks.{name}.{key}", before=old, now=new)

    def _accounts(self, name: str, before: Values, now: Values) -> Iterator[PipelineChange]:
        for account in sorted(accounts_of(before) - accounts_of(now)):
            owed = any((piece.sink, piece.account) == (name, AccountName(account)) for piece in self._decision.staged)
            ruling = removed_account(name, self._unsettled if owed else None)
            yield PipelineChange.by(ruling, f"sinks.{name}.accounts.{account}", before="", now=None)
        for account in sorted(accounts_of(now) - accounts_of(before)):
            yield PipelineChange.by(added_account(), f"sinks.{name}.accounts.{account}", before=None, now="")

    def _is_filled(self, name: str) -> bool:
        """Return whether rows of a sink are published for certain."""
        owed = self._decision.totals_of(SinkName(name)).rows if self._unsettled is not None else 0
        return self._rows_decided(name) > owed

    def _rows_decided(self, name: str) -> int:
        return sum(totals.rows for totals in self.summary.totals.get(SinkName(name), {}).values())

    def _moved(self, name: str, *, was: Values | None = None) -> Ruling:
        """Return what a start says about the new place of a sink, if it can be reached: by the marker there."""
        refusal: Refused | None = None
        with suppress(PenstockError), closing(self._sink_now(name)) as sink:
            try:
                require_present(self.ledger, (sink,), pipeline=self.plan.pipeline)
            except Refused as refused:
                refusal = refused
        if refusal is None and self._unsettled is not None and name in self._unsettled.sinks:
            return moved_unsettled(self._unsettled.batch_id)
        if refusal is None and was is not None and was.get("type") != self._now.sinks[name].get("type"):
            return other_kind()
        if name != NAME and self._now.sinks[name].get("type") == "http" and self._is_filled(name):
            return other_endpoint()
        return moved_ruling(None if refusal is None else refusal.message, "" if refusal is None else refusal.remedy)

    def _sink_now(self, name: str) -> Sink:
        quarantine = quarantine_of(self.plan) if name == NAME else None
        return sink_of(SinkName(name), self.plan) if quarantine is None else quarantine


def versions_of(spark: str | None) -> Values:
    """Return the versions that a run's description holds; `spark` is that of the session, None before there is one."""
    return {"penstock": penstock.__version__, **({} if spark is None else {"spark": spark})}


def _names_other(key: str, before: Values, now: Values) -> bool:
    """Return whether `key` names another table than before. Where rows name tables, the last part of a path does, too."""
    old, new = before.get(key), now.get(key)
    if key == "path" and any(each.partition(".")[0] == "tables" for each in (*before, *now)):
        return (old or "").rpartition("/")[2] != (new or "").rpartition("/")[2]
    return key == "table" and _table(old) != _table(new)


def _table(name: str | None) -> str:
    """Return a table's name without that of its schema, which can be written or left out."""
    return (name or "").rpartition(".")[2].lower()


def _columns_in(schema: str) -> list[str]:
    return [f"{each['name']} {json.dumps(each['type']).strip(chr(34))}" for each in json.loads(schema)["fields"]]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _minor(version: str | None) -> tuple[str, ...]:
    return tuple((version or "").split(".")[:2])


def _different(before: Values, now: Values) -> Iterator[tuple[str, str | None, str | None]]:
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def _uncompared(before: RunDescription, now: RunDescription) -> Iterator[str]:
    """Yield the parts whose values are not kept, wholly or in part, and whose name is not that of a secret."""
    yield from _masked(before.query, now.query, "")
    for group, old, new in (("sources", before.sources, now.sources), ("sinks", before.sinks, now.sinks)):
        for name in sorted(old.keys() & new.keys()):
            yield from _masked(old[name], new[name], f"{group}.{name}.")


def _masked(before: Values, now: Values, above: str) -> Iterable[str]:
    same = (key for key in sorted(now) if before.get(key) == now[key] and not looks_secret(key))
    return (f"{above}{key}" for key in same if now[key] == MASK or now[key].endswith(HIDDEN_PATH))
