"""What a change of the query means: transform, state, output mode, trigger, Spark's settings and versions."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.model import BatchId
from penstock.run.preflight.change import PipelineChange, Preflight, Ruling, breaking, safe, safe_after
from penstock.run.preflight.description import Values
from penstock.run.preflight.source_rules import NEW_CHECKPOINT
from penstock.transform.state_held import KINDS, SESSIONS, StateHeld

_SENT_ONCE = frozenset({"dedupe", "dedupeWithinWatermark", "globalLimit", "symmetricHashJoin"})
"""Operators that send a row when it comes, or once, and never again."""
COLUMNS = "columns"
_TRY = "Run one batch: `penstock run FILE --batches 1`. If Spark refuses it, put the old transform back: nothing is lost."
_ASK = "Run `penstock check FILE`, which asks Spark for the plan."


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryNow:
    """The query as the next run would have it. `state` is None where its plan is not known yet, before Spark has started."""

    values: Values
    state: tuple[StateHeld, ...] | None = None
    spark: str | None = None
    upserts: bool = False
    """Whether every sink replaces a row by one with the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateThen:
    """What the checkpoint holds: whether there is state, and the settings that Spark fixed with the first batch."""

    stateful: bool
    fixed: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] | None = None
    """The kinds of the stateful operators; None where an older Spark does not say."""
    uncompacted: int = 0
    """How many entries a file source's log has that were never compacted; the most, where there are several such logs."""


def query_ruling(key: str, before: Values, now: QueryNow, then: StateThen) -> Ruling:
    """Return what the change of `key` means. Changes of the state itself are told by `state_changes`."""
    name, _, rest = key.partition(".")
    if name == "spark":
        return _conf(rest.removeprefix("conf."), now.values.get(key), then)
    if name == "transform":
        return _transform(now, then)
    if name == "trigger":
        return _trigger(now.values.get(key, "").partition(" ")[0])
    if name == "output_mode":
        return _output_mode(before.get(key, "append"), now.values.get(key, "append"), now, then)
    return _OTHER.get(name, safe("It holds from the next batch on."))


_OTHER: Mapping[str, Ruling] = {
    "guarantee": safe("The next start is checked by the new demand; what was delivered stays as it was."),
    "quarantine": safe("Records that cannot be decoded go there from the next batch on."),
}


def replay_ruling(key: str, newest: BatchId) -> Ruling | None:
    """Return what the change of `key` means while Spark still computes batch `newest` once more for its state, None if nothing.

    The rows of that batch are delivered as they were: the state must be that of the same rows.
    """
    part = key.partition(".")[0]
    why = f"Batch {newest} is delivered, and Spark computes it once more for its state: by the new rows, not by those delivered."
    action = "Put it back, run one batch (`penstock run FILE --batches 1`), and then change it."
    if part == "expect":
        return breaking(why, action=action)
    return safe_after(action, why) if part in {"transform", "schema", "decode"} else None


def _transform(now: QueryNow, then: StateThen) -> Ruling:
    if now.state is None:
        return safe_after(_ASK, "The query keeps state.") if then.stateful else safe("It holds from the next batch on.")
    if any(held.opaque for held in now.state):
        return safe_after(_TRY, "The query keeps rows or values of its own, whose columns Spark compares before the first batch.")
    kept = " What it keeps is under `state`, if that changed." if now.state else ""
    return safe(f"It holds from the next batch on.{kept}")


def columns_ruling(refusal: str | None) -> Ruling:
    """Return what other columns of the rows mean. `refusal`: why a sink does not take them, None if none refuses them."""
    if refusal is None:
        return safe("Every sink that can say so takes them from the next batch on.")
    return breaking(refusal, action="Do that, or give the columns in the transform the names, types and order that they had.")


def refused_by_sinks(found: Preflight, refusals: Mapping[str, str]) -> Preflight:
    """Return `found` with what sinks refuse, by their names, as the ruling on changes of columns: of all rows, and of their own.

    Of several sinks that refuse the columns of all rows the first one is told.
    """
    for name, message in [*refusals.items()][::-1]:
        ruling = columns_ruling(f"Sink {name!r}: {message}")
        own = re.compile(rf"{COLUMNS}|sinks\.{re.escape(name)}\.(?:select|exclude)(?:\..*)?")
        for part in [change.part for change in found.changes if own.fullmatch(change.part)]:
            found = found.with_ruling(ruling, part)
    return found


def _trigger(kind: str) -> Ruling:
    if kind in {"continuous", "real_time"}:
        return breaking(
            "Its batches have no identity: rows come again after a crash, and the ledger notes nothing of them.",
            action="Use processing_time or available_now; or give that query a pipeline of its own.",
        )
    return safe("It says when batches start, not what is in them.")


def _output_mode(before: str, now: str, query: QueryNow, then: StateThen) -> Ruling:
    if not then.stateful or (query.state is not None and all(held.kind in _SENT_ONCE for held in query.state)):
        return safe("Every row is sent once, in any mode.")
    if query.state is None:
        return safe_after(_ASK, "The query keeps state.")
    if not {held.kind for held in query.state} <= KINDS | {SESSIONS}:
        return safe_after(_TRY, "What is sent in which mode is up to the code that keeps the state.")
    return _mode_of_groups(before, now, upserts=query.upserts)


def _mode_of_groups(before: str, now: str, *, upserts: bool) -> Ruling:
    """Return what another output mode means for a query that aggregates."""
    if (before, now) == ("complete", "update"):
        return safe("The table has all groups; from now on those that changed are sent.")
    if (before, now) == ("update", "complete"):
        return safe_after(
            "Do it only without a watermark: with one, groups that are forgotten leave the table.",
            "From now on every batch sends all groups that are kept.",
        )
    if now == "append" and upserts:
        return safe("Groups that were sent are sent once more when they close, and replace what is there.")
    return breaking(_LOST_GROUPS[now], action=NEW_CHECKPOINT)


_LOST_GROUPS: Mapping[str, str] = {
    "append": "Groups that were sent are sent once more when they close.",
    "update": "Groups that are open and get no more rows would never be sent.",
    "complete": "Groups that were sent are forgotten, so that a table that is replaced would lose them.",
}


_COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"
_DEFAULT_INTERVAL = 10


def _conf(key: str, now: str | None, then: StateThen) -> Ruling:
    if key == _COMPACT_INTERVAL:
        interval = int(now) if now is not None and now.isdecimal() else _DEFAULT_INTERVAL
        if 0 < interval <= then.uncompacted:
            return breaking(
                f"Spark takes entry {interval - 1} of a file source's log for a compacted one, finds none, and does not start.",
                action="Put it back until `sources` of the checkpoint has an entry that ends with `.compact`, then change it.",
            )
        return safe("Spark keeps to the entries that it has compacted so far.")
    if key in then.fixed:
        held = then.fixed[key]
        effect = "as the file says now" if held == now else "no effect until a new checkpoint"
        return safe(f"Spark takes {held} from the checkpoint: {effect}.")
    return safe("It is Spark's, for the next run; it does not change which rows were delivered.")


def state_changes(
    before: Sequence[StateHeld] | None, now: QueryNow, then: StateThen, *, same_spark: bool, gone: Collection[str]
) -> Iterator[PipelineChange]:
    """Yield what differs in the state that the query keeps.

    `before` is None where no description tells; then only the checkpoint's own metadata is compared. Text of plans is compared
    only of the `same_spark`. `gone`: columns that the sources no longer have, by those names at least.
    """
    if now.state is None:
        return
    kinds = tuple(held.kind for held in now.state)
    known = _kinds_before(before, then)
    if known is not None and known != kinds:
        yield PipelineChange.by(
            breaking(
                "Spark knows state by the number of its operator: it refuses the query, or takes the state of another operator.",
                action=NEW_CHECKPOINT,
            ),
            "state",
            before=", ".join(known) or "none",
            now=", ".join(kinds) or "none",
        )
    elif before is not None and same_spark:
        for number, (old, new) in enumerate(zip(before, now.state, strict=True)):
            yield from _operator_changes(number, old, new, gone=gone)


def _kinds_before(before: Sequence[StateHeld] | None, then: StateThen) -> tuple[str, ...] | None:
    if before is not None:
        return tuple(held.kind for held in before)
    if not then.stateful:
        return ()
    known = then.kinds
    return known if known is not None and len(known) == 1 and KINDS.issuperset(known) else None


_MIXED = "Spark knows state by position and type: what was kept for the old {} is taken for the new, or the query is refused."


def _operator_changes(number: int, old: StateHeld, new: StateHeld, *, gone: Collection[str]) -> Iterator[PipelineChange]:
    for part, what, before, now in (("keys", "keys", old.keys, new.keys), ("holds", "values", old.holds, new.holds)):
        if before == now:
            continue
        ruling = (
            safe_after(_TRY, "Columns of a source have other names now: do it only if they are the same columns.")
            if set(gone).intersection(re.findall(r"\w+", before))
            else breaking(_MIXED.format(what), action=NEW_CHECKPOINT)
        )
        yield PipelineChange.by(ruling, f"state.{number}.{part}", before=before, now=now)


def version_ruling(program: str, before: str, now: str, then: StateThen) -> Ruling:
    """Return what another version of Spark, Penstock or Python means."""
    up = _numbers(now) >= _numbers(before)
    if program == "spark":
        if up and not then.stateful:
            return safe("A newer Spark reads what an older one wrote.")
        copy = "Keep a copy first: `penstock checkpoint copy FILE OTHER`."
        if up:
            return safe_after(copy, "A newer Spark reads the state of an older one, but not the other way round.")
        why = "Spark promises nothing for state that a newer one wrote."
        return safe_after(copy, why if then.stateful else "An older Spark reads what the newer one wrote, or refuses it.")
    if program == "penstock" and not up:
        return safe_after(
            "Keep a copy of home and ledger first.",
            "It refuses what it cannot read of a newer one (`FormatTooNew`).",
        )
    return safe("It reads all that the older one wrote." if up else "Nothing durable depends on it.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
