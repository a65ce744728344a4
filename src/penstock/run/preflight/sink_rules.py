"""What a change of a sink means."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.model import BatchId
from penstock.run.preflight.change import Ruling, breaking, safe, safe_after
from penstock.run.preflight.description import Values
from penstock.support.secret import MASK

_RECOVER = "Put it back, run `penstock recover FILE`, and then change it."
_FROM_NEXT = "It gets the batches from the next one on; earlier ones are not delivered to it."
_NEXT = "It holds from the next batch on; what is there stays as it is."
_OTHER_HISTORY = "Set it back, or give the sink another name and another table."
_PLACE = re.compile(
    r"type|url|table|path|catalog|catalog_name|warehouse|branch|topic|topics|bootstrap|marker_topic|driver|python"
    r"|(accounts|catalog_options|connect|topics)\..*"
)
_ACCOUNT = re.compile(r"accounts\.(.+)\.url")


def is_place(key: str) -> bool:
    """Return whether `key` of a sink says where its rows are."""
    return _PLACE.fullmatch(key) is not None


def is_place_of_quarantine(key: str) -> bool:
    """Return whether `key` of the pipeline says where its quarantine is."""
    return key == "quarantine.url" or key.startswith("quarantine.options.")


def accounts_of(sink: Values) -> frozenset[str]:
    """Return the names of a sink's accounts."""
    return frozenset(found[1] for key in sink if (found := _ACCOUNT.fullmatch(key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """The newest decision, of which the ledger does not say yet that every sink shows it."""

    batch_id: BatchId
    sinks: frozenset[str]
    """Those that it has rows for."""


def added_sink(name: str, now: Values, gone: Mapping[str, Values]) -> Ruling:
    """Return what a new sink means. `gone`: the sinks that the pipeline lacks now."""
    renamed = next((name for name, before in gone.items() if _shares_place(before, now)), None)
    if renamed is not None:
        why = f"It has the place of sink {renamed!r}: a place belongs to a sink by its name, and the start refuses another one."
        action = f"Give it the name {renamed!r} again, or a place of its own."
        is_sure = now.get("type") in _OWNED and MASK not in now.values()
        return breaking(why, action=action) if is_sure else safe_after(action, why)
    return safe(
        f"It gets the batches from the next one on. Before that, `penstock backfill FILE --sink {name}` gives it earlier ones."
    )


def added_account() -> Ruling:
    """Return what a new account means."""
    return safe(_FROM_NEXT)


_OWNED = frozenset({"parquet", "sqlite", "duckdb", "postgres", "mysql", "redshift", "sqlserver"})
_UNOWNED = frozenset({"http", "console", "memory", "python"})
"""Types of sinks whose place does not tell whose it is."""


def _shares_place(before: Values, now: Values) -> bool:
    if before.get("type") != now.get("type") or now.get("type") in _UNOWNED:
        return False
    accounts = [{value for key, value in values.items() if _ACCOUNT.fullmatch(key)} for values in (before, now)]
    if any(accounts):
        return not accounts[0].isdisjoint(accounts[1])
    places = [{key: value for key, value in values.items() if is_place(key)} for values in (before, now)]
    return places[0] == places[1]


def removed_account(name: str, unsettled: Unsettled | None) -> Ruling:
    """Return what an account of sink `name` means that is gone. `unsettled`: a decision with rows for it."""
    if unsettled is not None:
        return removed_sink(name, unsettled)
    return safe("It shows all that was decided for it, and stays as it is. `penstock verify FILE` does not look there any more.")


def removed_sink(name: str, unsettled: Unsettled | None) -> Ruling:
    """Return what a sink means that is gone."""
    if unsettled is not None and name in unsettled.sinks:
        return safe_after(
            _RECOVER.replace("change it", "take it out"),
            f"Batch {unsettled.batch_id} is decided with rows for it, and the ledger does not say yet that they are there.",
        )
    return safe("It shows all that was decided for it, and stays as it is.")


def sink_ruling(
    key: str, before: Values, now: Values, *, name: str, unsettled: Unsettled | None, has_rows: bool = True
) -> Ruling:
    """Return what the change of `key` means, for a key that is no place. `has_rows`: some are decided for the sink."""
    if key in _OF_WRITING and unsettled is not None and name in unsettled.sinks:
        return safe(f"Batch {unsettled.batch_id} is published as it was decided. {_NEXT}")
    if key in _OF_HISTORIES and "history" in before and "history" in now:
        return _OF_HISTORIES[key]
    if key == "key" and now.get("type") in {"http", "kafka"}:  # not of a table
        return safe(_NEXT)
    if key == "write":
        return _write(before.get(key), now.get(key))
    if key == "partition_by" and has_rows:
        return _OTHER_PARTITIONS.get(now.get("type", ""), _PARTITIONED_OTHERWISE)
    return _OF_KEYS.get(key.partition(".")[0], safe(_NEXT))


_OF_WRITING = frozenset({"where", "select", "exclude", "compression", "target_file_size", "column_encoding", "lanes"})
_UNIQUE = (
    "Give the table a unique index on the key, and look first for rows that have one key twice.",
    "From now on a row whose key is there replaces that row, or is left out; rows that are there stay.",
)
_OF_KEYS: Mapping[str, Ruling] = {
    "key": safe_after(*_UNIQUE),
    "route": safe("Rows from the next batch on go by the new route; those that are there stay in their account."),
    "unrouted": safe("Rows from the next batch on go there, or fail the batch."),
    "tables": safe("It holds from the next batch on. A table that is not allowed any more stays as it is, and is not verified."),
    "create": safe("The table is there."),
    "existing_rows": safe("It is about rows of others that are there before the first batch."),
    "schema_changes": safe("It says what a start does about columns that are new or wider."),
    "deletes": safe(_NEXT),
    "history": breaking(
        "A table with history has other columns and another key: the start is refused.",
        action=_OTHER_HISTORY,
    ),
}


_PARTITIONED_OTHERWISE = breaking(
    "What is there has other partitions, and no reader could read both as one: the start is refused.",
    action="Set it back, or give the sink another name and an empty place.",
)
_OTHER_PARTITIONS: Mapping[str, Ruling] = {
    "iceberg": safe_after(
        "Change the table's partitions first, or set it back.", "The start is refused unless the table has the same partitions."
    )
}


_OF_HISTORIES: Mapping[str, Ruling] = {
    "sequence_by": breaking(
        "The times of versions that are there do not compare with new ones: a newer change could end before an older one.",
        action=_OTHER_HISTORY,
    ),
    "key": breaking("Versions that are there belong to the old key: no later change would end them.", action=_OTHER_HISTORY),
}


def _write(before: str | None, now: str | None) -> Ruling:
    if "merge" in {before, now}:
        return breaking(
            "With `write: merge` your own SQL writes the rows, and nobody can tell which are there: the start is refused.",
            action="Set it back, or give the sink another name and an empty table.",
        )
    if now in {"replace", "overwrite_partitions"}:
        return safe_after(
            "Copy the table first, if rows of earlier batches are needed.",
            "From the next batch on what is there is replaced: rows of earlier batches leave the table.",
        )
    if now in {"upsert", "insert_if_absent"} and before in {None, "append"}:
        return safe_after(*_UNIQUE)
    return safe(_NEXT)


def moved_ruling(refusal: str | None, remedy: str) -> Ruling:
    """Return what a sink means whose place changed. `refusal`: why the start refuses the new place, None if it does not."""
    if refusal is not None:
        return breaking(refusal, action=remedy)
    return safe("Nothing was published there yet, or its marker is in the new place.")


def other_table(name: str, before: str | None) -> Ruling:
    """Return what another table means for a sink that has filled one: its marker names that one."""
    return breaking(
        f"Sink {name!r} filled table {before!r} so far, as its marker says: the start is refused.",
        action="Name that table again, or give the sink another name: the batches so far stay in the old table.",
    )


def other_kind() -> Ruling:
    """Return what another type of sink means, where the old one left nothing that the new one must have."""
    return safe_after(
        "Give the sink another name, by which the ledger tells the two places apart.",
        "What is in the old place stays there, and the new one begins empty.",
    )


def spool_of_notes(name: str) -> Ruling:
    """Return what another spool means for sink `name`, which notes there what was answered."""
    return safe_after(
        "Stop the pipeline, and copy the files of the old spool into the new one first.",
        f"Sink {name!r} notes there which batches it sent: without these notes the newest one is sent again, which an endpoint "
        "takes twice once it has forgotten the keys.",
    )


def other_endpoint() -> Ruling:
    """Return what another endpoint means for a sink that has sent rows: nothing there tells what it has."""
    return safe_after(
        "If the new endpoint needs the batches so far, give the sink another name, and `penstock backfill` it.",
        "The batches so far are at the old endpoint; the new one gets them from the next one on.",
    )


def moved_unsettled(batch_id: BatchId) -> Ruling:
    """Return what a change of place means while the newest batch may still be in the old one."""
    return safe_after(
        _RECOVER, f"Batch {batch_id} is decided, and the ledger does not say yet that it is published in the old place."
    )
