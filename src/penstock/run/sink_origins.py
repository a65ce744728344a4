"""What is known of a sink's content when a query that exists is taken over, by sink, and what an operator has to trust."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.checkpoint.file_sink_log import read_file_sink_log
from penstock.checkpoint.files import LocalFiles
from penstock.core.model import AccountName, BatchId, SinkName
from penstock.errors import CheckpointDamaged, Refused
from penstock.observe.status import CheckpointPosition
from penstock.protocols import Sink
from penstock.run.application import compared, versions_in
from penstock.run.assembly import DeliveryPlan
from penstock.run.runtime import Runtime
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.sink.parquet.adoption import AccountAdoption, FilesToAdopt

_BY_KEY = frozenset({"upsert", "insert_if_absent", "merge"})


@runtime_checkable
class TakesOverFiles(Protocol):
    """A sink whose accounts can begin with the files of Spark's file sink."""

    def adoptions(self) -> "Mapping[AccountName, AccountAdoption]":
        """Return for each account how it can go on where another query stopped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOrigin:
    """What a sink has of the query: `known` for certain, and `trusted`, what nothing tells (None: nothing is left to trust).

    `is_open`: it can hold rows of a batch that the query did not commit. `refused` says why the query cannot be taken over with
    the sink as it is, and `remedy` what helps. `files`: by account, what it begins with, and the files of no batch, which move
    to another directory.
    """

    sink: SinkName
    known: str
    trusted: str | None = None
    is_open: bool = False
    refused: str | None = None
    remedy: str | None = None
    files: "Mapping[AccountName, FilesToAdopt]" = field(default_factory=dict)


def origins(
    plan: DeliveryPlan,
    runtime: Runtime,
    position: CheckpointPosition,
    *,
    txn_app_id: str | None,
    trusted: Collection[SinkName],
) -> Iterator[SinkOrigin]:
    """Yield what is known of each sink's content, for a query whose checkpoint stands at `position`.

    `txn_app_id`: the application as which the query wrote into Delta tables, by default its query id. `trusted`: sinks that hold
    nothing of a batch that was planned and not committed, as the operator says. Raises Retryable, Failed.
    """
    for sink in runtime.row_sinks:
        found = _origin_of(plan, sink, position, txn_app_id)
        yield found if sink.name in trusted else _with_replay(found, position, checkpoint=runtime.checkpoint.location)


def _origin_of(plan: DeliveryPlan, sink: Sink, position: CheckpointPosition, txn_app_id: str | None) -> SinkOrigin:
    try:
        if isinstance(sink, TakesOverFiles) and (accounts := sink.adoptions()):
            return _accounts(sink.name, accounts, position)
        if versions_in(sink) is not None:
            return _table(sink, position, txn_app_id)
    except Refused as refusal:
        return SinkOrigin(sink=sink.name, known="It cannot be gone on from.", refused=refusal.message, remedy=refusal.remedy)
    return _unknown(plan, sink.name, position)


# --- Spark's file sink


def _accounts(sink: SinkName, accounts: "Mapping[AccountName, AccountAdoption]", position: CheckpointPosition) -> SinkOrigin:
    found = [_account(sink, name, account, position) for name, account in accounts.items()]
    return SinkOrigin(
        sink=sink,
        known=" ".join(one.known for one in found),
        trusted=" ".join(dict.fromkeys(one.trusted for one in found if one.trusted)) or None,
        files={name: files for one in found for name, files in one.files.items()},
        is_open=any(one.is_open for one in found),
    )


def _account(sink: SinkName, name: AccountName, account: "AccountAdoption", position: CheckpointPosition) -> SinkOrigin:
    begins = BatchId(position.next_batch_id - 1)
    adopted = account.adopted
    try:
        log = None if account.log is None else read_file_sink_log(LocalFiles(account.log))
    except CheckpointDamaged as damaged:
        raise damaged if adopted is None else account.query_ran_since(adopted) from None
    if log is not None:
        _require_newest(log.newest, position, place=str(account.url))
        planned = account.plan(log.sizes, log.newest)
        known = _logged(account, planned, begins)
        return SinkOrigin(sink=sink, known=known, trusted=_THAT_QUERY, files={name: planned})
    if adopted is not None:
        _require_newest(adopted.batch_id, position, place=str(account.url))
        begun = formatting.counted(len(adopted.sizes), "file")
        return SinkOrigin(sink=sink, known=f"{account.url} was taken over with {begun}.", trusted=_THAT_QUERY)
    first = account.first_file()
    if first is None:
        return SinkOrigin(sink=sink, known=f"{account.url} is empty: it gets batches from {position.next_batch_id} on.")
    if not account.keeps_files:
        raise Refused(
            f"{account.url} holds files that Penstock did not write, {first} for one, and no log of Spark's file sink.",
            remedy="If their rows belong to the table, set existing_rows: keep in the sink. Else name an empty account.",
        )
    return SinkOrigin(
        sink=sink,
        known=f"{account.url} has files of the query, which `verify` counts and does not compare.",
        trusted=_whole(begins),
        is_open=True,
    )


_THAT_QUERY = "that the query of this checkpoint filled the directory: the log does not name it."


def _whole(begins: BatchId) -> str:
    return f"that it has every row of the batches up to {begins} once."


def _logged(account: "AccountAdoption", planned: "FilesToAdopt", begins: BatchId) -> str:
    files = formatting.counted(len(planned.adopted.sizes), "file")
    text = (
        f"{account.url}: the log of Spark's file sink names {files} ({formatting.size(planned.size_bytes)}), of every batch up "
        f"to {begins}, the last one that the checkpoint committed. The log moves to {account.set_aside(planned)}: from then on "
        "readers with Spark list the directory."
    )
    if not planned.others:
        return text
    several = formatting.counted(len(planned.others), "file")
    return f"{text} No batch has {several}, {planned.others[0]} for one: moved to {account.left_out}."


def _require_newest(newest: BatchId, position: CheckpointPosition, *, place: str) -> None:
    """Raise Refused unless the newest batch in the directory is the last one that the checkpoint committed."""
    committed = BatchId(position.next_batch_id - 1)
    if newest == committed + 1 and position.is_replay:
        raise Refused(
            f"{place} has batch {newest}, but the checkpoint has no commits/{newest}: the query ran one batch further than its "
            "commit log, and that batch would be there twice.",
            remedy="Start the query once more: it passes over the batch, and Spark commits it. Stop it, and adopt then.",
        )
    if newest > committed:
        raise Refused(
            f"{place} has batch {newest}, but the checkpoint goes on with batch {committed + 1}: the batches in between would be "
            "there twice.",
            remedy="Name the checkpoint that the query used last, not a copy of it.",
        )
    if newest < committed:
        raise Refused(
            f"{place} has batches up to {newest} only, but the checkpoint committed batch {committed}: the rows in between would "
            "be lost.",
            remedy="Name the directory that this query filled, not a copy of it.",
        )


# --- tables


def _table(sink: Sink, position: CheckpointPosition, txn_app_id: str | None) -> SinkOrigin:
    """Return what the versions of applications in a Delta table say. A query that writes with `format("delta")` is one itself."""
    table = versions_in(sink)
    assert table is not None
    application = txn_app_id or str(position.query_id)
    begins = BatchId(position.next_batch_id - 1)
    if txn_app_id is None and table.application_version(application) is None:
        return SinkOrigin(
            sink=sink.name,
            known=f"Its table has no version of query {application}; --txn-app-id names another application.",
            trusted=_whole(begins),
            is_open=True,
        )
    trusted = None if txn_app_id is None else "that the program wrote each batch by one commit, with its number as txnVersion."
    return SinkOrigin(sink=sink.name, known=compared(application, sink.name, table, position), trusted=trusted)


def _unknown(plan: DeliveryPlan, sink: SinkName, position: CheckpointPosition) -> SinkOrigin:
    begins = BatchId(position.next_batch_id - 1)
    write = getattr(plan.settings.sinks[sink], "write", None)
    known = "Nothing in it tells which batches it has."
    if write == "replace":
        return SinkOrigin(sink=sink, known="With write: replace, each batch replaces what is there.")
    if write in _BY_KEY:
        known += f" With write: {write}, a row that comes again has no effect."
    return SinkOrigin(sink=sink, known=known, trusted=f"{_whole(begins)[:-1]}, or is new.", is_open=write not in _BY_KEY)


def _with_replay(found: SinkOrigin, position: CheckpointPosition, *, checkpoint: str) -> SinkOrigin:
    """Return `found`, refused if the query may have written a part of the batch that comes now, and nothing tells."""
    if not position.is_replay or not found.is_open or found.refused:
        return found
    number = position.next_batch_id
    return replace(
        found,
        refused=f"The query planned batch {number} and did not commit it, so that batch is delivered here as a whole. What the "
        f"query wrote of it into sink {found.sink!r} would be there twice, and nothing tells whether it did.",
        remedy=f"`penstock checkpoint explain {checkpoint}` names the files or offsets of the batch. Take its rows out of the "
        f"sink, or make sure that none is there, and say so with --trust {found.sink}.",
    )
