"""Checks that a sink may fill an account: it belongs to one sink of one pipeline and to one ledger, and its files fit the rows.

If two sinks or ledgers filled one account, neither could prove its content. An engine reads all files below the root as one
table, so new files must be readable together with those that are there.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.high_water_mark import AccountOwner
from penstock.core.model import AccountName, PipelineName, SinkName, SweepCut
from penstock.errors import LedgerMismatch, Refused, Retryable
from penstock.sink.parquet.account import Account, Area
from penstock.sink.parquet.layout import attempt_of, is_parquet, order_of, owner_in, unescape
from penstock.sink.parquet.row_file import own_schema
from penstock.spark.schema import arrow_schema

_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes its schema of the rows in the footer of a file."""
FILES_LOOKED_AT = 10_000
"""The most file names that `require_continued` reads: more files must not make a start slower."""
REMEDY = "Give every sink of every pipeline accounts of its own, and let readers read them together."


def require_own_account(
    found: AccountOwner | None, *, pipeline: PipelineName, sink: SinkName, account: AccountName, url: str
) -> None:
    """Raise Refused if the account at `url` has an owner, `found`, that is not this account of this sink."""
    if found is None or (found.pipeline, found.sink, found.account) == (pipeline, sink, account):
        return
    raise Refused(
        f"{url} belongs to account {found.account!r} of sink {found.sink!r} of pipeline {found.pipeline!r}, expected account "
        f"{account!r} of sink {sink!r} of pipeline {pipeline!r}.",
        remedy=REMEDY,
    )


def require_apart(account: Account, owner: AccountOwner | None) -> None:
    """Raise Refused if an account without an owner lies within one that has an owner, whose readers would find its files."""
    outer = next(account.enclosing(), None) if owner is None else None
    if outer is not None:
        url, other = outer
        raise Refused(
            f"{account.url} lies within {url}, which belongs to account {other.account!r} of sink {other.sink!r} of pipeline "
            f"{other.pipeline!r}.",
            remedy="Give every sink of every pipeline accounts of its own, none of them within another one.",
        )


def is_anothers(found: AccountOwner | None, cut: SweepCut) -> bool:
    """Return whether `found` names another ledger, for which `cut` means nothing (I10).

    Called after listing what is dead: a ledger that claims the account later stages later, so nothing of it was listed.
    """
    return found is not None and found.ledger_id != cut.ledger_id


def require_unfilled(area: Area, *, url: str, keeps_files: bool) -> None:
    """Raise LedgerMismatch if an account without owner and marker holds files of Penstock's: the owner is noted elsewhere.

    Raise Refused if it holds files of others, unless those are kept: `verify` would call them foreign for ever. Called when
    everything that this ledger decided is published, so that its own files have a marker (I2). It looks at all files, once in the
    life of an account, which is claimed afterwards.
    """
    if area.claimed_by() is not None or area.marker() is not None:
        return
    require_no_spark_log(area, url=url)
    adopted, other = area.adopted(), None
    for file in area.files():
        if attempt_of(file.name) is not None:
            raise LedgerMismatch(
                f"{url} holds {file.name}, but neither an owner nor a marker that says which ledger decided it: the staging of "
                "the account was removed, or was in another place, by another path or another option `staging`.",
                remedy="Name the account and its staging as the run did that filled it, with that run's ledger, and start again. "
                "If they are lost, give the sink another name and empty accounts: the rows that are there would come twice.",
            )
        if adopted is None or file.name not in adopted.sizes:
            other = other or file.name
    if other is not None and not keeps_files:
        raise _holds_others(other, url)


def require_no_others(area: Area, *, url: str, keeps_files: bool) -> None:
    """Raise Refused if an account without owner and marker holds files of others, as `require_unfilled` does, before a start."""
    if area.claimed_by() is not None or area.marker() is not None:
        if not area.is_remote:
            _require_none_again(area, url=url)
        return
    require_no_spark_log(area, url=url)
    if keeps_files:
        return
    adopted = area.adopted()
    known = frozenset[str]() if adopted is None else adopted.sizes.keys()
    others = next((file.name for file in area.files() if attempt_of(file.name) is None and file.name not in known), None)
    if others is not None:
        raise _holds_others(others, url)


def require_no_spark_log(area: Area, *, url: str) -> None:
    """Raise Refused for a directory that Spark's file sink filled: by its log, readers with Spark would pass over new files."""
    log = area.spark_log()
    if log is not None:
        raise Refused(
            f"{url} has the log of Spark's file sink, {log}: readers with Spark see only the files that it names.",
            remedy="Take it over with the checkpoint of the query that filled it: `penstock adopt FILE --from CHECKPOINT`. Or "
            "name an empty directory.",
        )


def _require_none_again(area: Area, *, url: str) -> None:
    """Raise Refused if Spark's file sink has filled a directory that is an account already."""
    log = area.spark_log()
    if log is not None:
        raise Refused(
            f"{url} has the log of Spark's file sink, {log}, though Penstock delivers there: another query writes into it, and "
            "readers with Spark see only the files that it names.",
            remedy=f"Stop that query for good, and move its log away: `mv {log} DIRECTORY`. `penstock verify` names its files.",
        )


def _holds_others(name: str, url: str) -> Refused:
    return Refused(
        f"{url} holds files that Penstock did not write, {name} for one.",
        remedy="If their rows belong to the table, as those of a job that you take over, set existing_rows: keep in the sink. "
        "Else name an empty account.",
    )


def claim_account(area: Area, owner: AccountOwner, *, url: str) -> None:
    """Note `owner` in the account unless it is noted already (I2). Raises Refused, LedgerMismatch, Retryable."""
    found = area.claimed_by()
    if found is None:
        area.claim(owner)
        found = area.claimed_by()
    if found is None:
        raise Retryable(f"The owner of {url} was written, but reading it back found none.", remedy="Try again.")
    require_own_account(found, pipeline=owner.pipeline, sink=owner.sink, account=owner.account, url=url)
    if found.ledger_id != owner.ledger_id:
        raise LedgerMismatch(
            f"{url} is filled by ledger {found.ledger_id} of pipeline {found.pipeline!r}, but this is ledger {owner.ledger_id}.",
            remedy=_remedy(area),
        )


def _remedy(area: Area) -> str:
    """Return the remedy. Penstock never takes over a claim: the other run may be about to publish its first batch."""
    if area.marker() is None and _filled_with(area) is None:
        return (
            "Put that ledger back and start again. If it is gone for good, with every run that used it: nothing was delivered "
            f"here yet, so remove {area.claim_place} and start again."
        )
    return (
        "Put that ledger back and start again. If it is lost, or both are to go on, give the sink another name and empty "
        "accounts: two ledgers would deliver the same rows twice."
    )


def _filled_with(area: Area) -> str | None:
    return next((file.name for file in area.files() if attempt_of(file.name) is not None), None)


_REMEDY = "in the pipeline file, or give the sink another name and new accounts."


def require_continued(area: Area, rows: "pa.Schema", partition_by: Sequence[str], *, account: AccountName, owner: str) -> None:
    """Raise Refused if `rows` do not fit the files of Penstock's that the account holds, or those that it begins with.

    A file must be of `owner`, have the same partition columns, and have no column of another type than in `rows`. Of at most
    FILES_LOOKED_AT files that are listed, only the oldest and the newest are opened: columns may come and go, and the newest has
    those that came since.
    """
    seen = list(islice(area.files(), FILES_LOOKED_AT))
    # In an account that an older Penstock filled, only file names tell the owner.
    other = next((file.name for file in seen if owner_in(file.name) not in {None, owner}), None)
    if other is not None:
        raise Refused(f"Account {account!r} holds {other}, which another sink or pipeline delivered.", remedy=REMEDY)
    aged = sorted((age, file.name) for file in seen if (age := order_of(file.name)) is not None)
    names = [name for _, name in aged]
    if not names:  # later the account's own files tell
        adopted, there = area.adopted(), {file.name for file in seen if is_parquet(file.name)}
        kept = filter(_is_partitioned, there) if area.claimed_by() is None else ()  # what comes later, `verify` calls foreign
        names = sorted(kept if adopted is None else adopted.sizes.keys() & there)
    for name in dict.fromkeys((*names[:1], *names[-1:])):
        _require_alike(area, name, rows, partition_by, account=account)


def _is_partitioned(name: str) -> bool:
    """Return whether a file of others lies where readers of a partitioned table find it: directly in it, or in `column=value`."""
    return all("=" in directory for directory in name.split("/")[:-1])


def _require_alike(area: Area, name: str, rows: "pa.Schema", partition_by: Sequence[str], *, account: AccountName) -> None:
    layout = [unescape(directory.partition("=")[0]) for directory in name.split("/")[:-1]]
    if layout != list(partition_by):
        raise Refused(
            f"The files of account {account!r} are partitioned by {_listed(layout)}, "
            f"and partition_by is {_listed(partition_by)}.",
            remedy=f"Put partition_by back {_REMEDY}",
        )
    for field in _columns(area, name):
        if field.name in rows.names and rows.field(field.name).type != field.type:
            raise Refused(
                f"Column {field.name!r} is {field.type} in the files of account {account!r}, "
                f"and {rows.field(field.name).type} in the rows: no reader could read both as one table.",
                remedy=f"Cast it in the transform to what it was, or put the schema back {_REMEDY}",
            )


def _columns(area: Area, name: str) -> "pa.Schema":
    """Return the file's columns; none if it cannot be read, which `penstock verify` reports."""
    with suppress(OSError, pa.ArrowException), area.open(name) as file:
        parquet = pq.ParquetFile(file)
        text = own_schema(parquet) or (parquet.metadata.metadata or {}).get(_OF_SPARK, b"").decode() or None
        return arrow_schema(text) if text is not None else pa.schema([])
    return pa.schema([])


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
