"""`penstock verify --accept-removed`: an operator states that missing files were removed on purpose."""

import getpass
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.commit.append import RETRY_TIMEOUT_S, stop_after_time, with_backoff
from penstock.commit.publication import decided_entry
from penstock.commit.removal import RemovedFiles, acts_of, append_removal, removed_files
from penstock.core.model import BatchId, Entry, MissingFiles, Position, SinkName, SinkReport, Summary, Totals
from penstock.errors import BatchForgotten, Refused, Retryable, Usage
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, ledger_of
from penstock.run.ledger_match import require_decided, require_present
from penstock.run.operations import Removed, Verification, chosen_sinks, verify
from penstock.run.runtime import now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What is missing from accounts in which nothing else differs. If `done`, the ledger has it, at `positions`.

    `verification` is what was found. If `done`, it is without what was accepted. `withheld`: accounts that also lack files of
    forgotten batches, but not all: only `forgotten` accepts these.
    """

    verification: Verification
    files: tuple[RemovedFiles, ...]
    withheld: tuple[tuple[SinkName, MissingFiles], ...] = ()
    done: bool = False
    positions: tuple[Position, ...] = ()


def accept_removed(
    plan: DeliveryPlan, *, sink: SinkName | None, before: str | None, forgotten: bool, reason: str, yes: bool
) -> Acceptance:
    """Compare the sinks with the ledger, and state which whole files are missing; with `yes` record them as removed on purpose.

    `before`: only files of batches before this one (a number), or decided before this time (ISO 8601). `forgotten`: also where
    only some files of batches are gone that the ledger has forgotten; what is left of them is taken as it is. Fences nobody.
    Raises Refused for a place that is not this ledger's, or lost its marker: it is not mounted, say. With `yes` raises Retryable
    while a decided batch is not in every sink.
    """
    with closing(ledger_of(plan)) as ledger:
        tail = ledger.tail()
        _require_own_places(plan, ledger, sink)
        limit = None if before is None else _position_of(ledger, before)
    found = verify(plan, sink=sink)
    for error in found.errors.values():
        raise error
    with closing(ledger_of(plan)) as ledger:
        withheld = () if forgotten else tuple(_partly_forgotten(found))
        files = _missing(ledger, found, limit, withheld)
        if not yes or not files or tail is None:
            return Acceptance(verification=found, files=files, withheld=withheld)
        _require_recordable(tail, found)
        positions = _record(ledger, files, reason=reason, compared=tail.summary)
        return Acceptance(
            verification=replace(_accepted(found, files), removed=Removed.of(ledger, ledger.tail())),
            files=files,
            withheld=withheld,
            done=True,
            positions=positions,
        )


def _require_own_places(plan: DeliveryPlan, ledger: Ledger, name: SinkName | None) -> None:
    """Raise Refused for a place that lost its marker, LedgerMismatch for one of another ledger: all files are missing there."""
    sinks = tuple(chosen_sinks(plan, name))
    try:
        markers = require_present(ledger, sinks, pipeline=plan.pipeline)
        require_decided(ledger, sinks, pipeline=plan.pipeline, markers=markers)
    finally:
        for sink in sinks:
            sink.close()


def _position_of(ledger: Ledger, before: str) -> Position:
    """Return the position of a batch, or of the first retained entry that was written at a time or later."""
    if before.isdecimal():
        entry = decided_entry(ledger, BatchId(int(before)))
        if entry is None:
            raise BatchForgotten(
                f"The ledger does not tell where batch {before} is: it holds no decision of it since the last adoption.",
                remedy="Name a batch that `penstock history` lists, or leave --before out.",
            )
        return entry.position
    limit_ms = _time_ms(before)
    found: Entry | None = None
    for entry in ledger.newest_first():
        if entry.written_at_ms < limit_ms:
            return Position(entry.position + 1)
        found = entry
    if found is None or found.position == 1:
        return Position(1)
    oldest = datetime.fromtimestamp(found.written_at_ms / 1000).astimezone().isoformat(timespec="seconds")
    raise BatchForgotten(
        f"The ledger does not tell which batches were decided before {before}: its oldest entry is of {oldest}.",
        remedy="Name a later time, or leave --before out.",
    )


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"--before {text} is neither the number of a batch nor a date.",
            remedy="Give a number, such as 41, or a date or time, such as 2026-01-31 or 2026-01-31T18:00.",
        ) from None
    return round(moment.timestamp() * 1000)


def _partly_forgotten(found: Verification) -> Iterator[tuple[SinkName, MissingFiles]]:
    """Yield accounts that lack some files of forgotten batches, but not all."""
    for name, report in found.sinks.items():
        yield from ((name, missing) for missing in report.missing if missing.unchecked.files)


def _missing(
    ledger: Ledger, found: Verification, limit: Position | None, withheld: Sequence[tuple[SinkName, MissingFiles]]
) -> tuple[RemovedFiles, ...]:
    if not any(report.missing for report in found.sinks.values()):
        return ()
    retained = list(ledger.newest_first())[::-1]
    each = (
        removed_files(name, _without_older(missing) if (name, missing) in withheld else missing, retained, before=limit)
        for name, report in found.sinks.items()
        for missing in report.missing
    )
    return tuple(files for files in each if files.names or files.totals.files)


def _without_older(missing: MissingFiles) -> MissingFiles:
    return replace(missing, older=Totals(), unchecked=Totals())


def _require_recordable(tail: Entry, found: Verification) -> None:
    if found.unsettled is not None:
        raise Retryable(
            f"Batch {found.unsettled} is decided, and not in every sink yet: nothing was accepted.",
            remedy="If a driver runs, try again in a moment; else run `penstock recover` first.",
        )
    if tail.summary.ledger_id is None:
        raise Refused(
            "The ledger has no identity: an older Penstock wrote all of it.",
            remedy="Run `penstock recover` once; then try again.",
        )


def _record(ledger: Ledger, files: Iterable[RemovedFiles], *, reason: str, compared: Summary) -> tuple[Position, ...]:
    """Append the acts. `compared`: the ledger's summary when the sinks were compared."""
    after, rewound_at = compared.removed_at, compared.rewound_at
    retrying = with_backoff(stop_after_time(RETRY_TIMEOUT_S), time.sleep)
    positions = list[Position]()
    for act in acts_of(files, reason=reason, operator=getpass.getuser()):
        after = append_removal(ledger, act, after=after, rewound_at=rewound_at, now_ms=now_ms, retrying=retrying).position
        positions.append(after)
    return tuple(positions)


def _accepted(found: Verification, files: Sequence[RemovedFiles]) -> Verification:
    """Return what was found without what was accepted of it: expected is what is left."""
    sinks = {name: _without(report, [each for each in files if each.sink == name]) for name, report in found.sinks.items()}
    return replace(found, sinks=sinks)


def _without(report: SinkReport, files: Sequence[RemovedFiles]) -> SinkReport:
    accounts = dict(report.accounts)
    for each in files:
        account = accounts[each.account]
        accounts[each.account] = replace(account, expected=account.expected - each.totals)
    accepted = {(each.account, name) for each in files for name in each.names}
    whole = {each.account for each in files if accounts[each.account].ok}
    problems = [
        problem for problem in report.problems if problem.account not in whole and (problem.account, problem.file) not in accepted
    ]
    left = tuple(missing for missing in report.missing if missing.account not in whole)
    return replace(report, accounts=accounts, problems=tuple(problems), missing=left)
