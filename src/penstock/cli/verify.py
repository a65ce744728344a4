"""`penstock verify`: compares every sink's content with the ledger, and records what was removed on purpose."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, Overrides, Yes, pipeline
from penstock.cli.output import hexadecimal, show, with_file, worded_fields
from penstock.cli.row_counts import row_fields, row_text
from penstock.cli.table import table
from penstock.commit.publication import decision_in
from penstock.core.model import (
    AccountName,
    AccountReport,
    Entry,
    MissingFiles,
    Position,
    Problem,
    RowDigest,
    SinkName,
    SinkReport,
    Totals,
)
from penstock.errors import PenstockError, Usage
from penstock.support import formatting
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from penstock.commit.removal import RemovedFiles
    from penstock.run.operations import Verification
    from penstock.run.removal import Acceptance

DIFFERENCE = 5
"""Exit code if a difference was found."""

_PROBLEMS_SHOWN = 50
_NULLS_UNSEEN = (
    "This pipeline began with an older Penstock, and its digests skip NULLs: a value that moved into a NULL column, or an "
    "empty array in place of NULL, is not seen."
)
_REMEDY = "Put back what is missing or was changed, from a backup, and take away what is twice; then verify again."
_REMEDY_FOR_FOREIGN = (
    "What is foreign, this pipeline did not deliver. Before you take it away, make sure that nobody needs it. Files of a job "
    "that was taken over stay in a sink of type parquet: set existing_rows: keep there."
)
_ON_PURPOSE = "If whole files were removed on purpose: `penstock verify FILE --accept-removed`."
_NEVER_ACCEPTED = (
    "What else differs cannot be accepted: rows of a table or topic, files that were changed, and accounts that hold files which "
    "are foreign or were rewritten."
)
_IS_FOREIGN = "is foreign"
_NO_SINCE = "only sinks of type parquet know which rows are newer; leave --since out to compare the others"


def fields_of(found: "Verification") -> dict[str, object]:
    """Return what `verify --json` prints.

    `since`: only what was decided after this batch was compared. `unsettled`: number of a decided batch that some sink did not
    show yet. `replaying`: position of such a replay. `adopted_at`: position of the last adoption of another checkpoint; rows
    decided before it can exist twice. `digest`: how rows are hashed. `unseen`: what digests of that kind cannot detect, None for
    the newest kind. Of a sink, `unread`: only what was published was compared, and no row was read; `as_of` is None where nothing
    is retained to compare. `rows_removed`: rows whose files were removed on purpose, so that they are not expected; `removed_at`
    is the position where that was accepted last. `unnamed`: the rows of each account that the pipeline file no longer names,
    where nobody looked. `rows`: where the rows went (`penstock.cli.row_counts`).
    `other_ledger`: what is to be put back where another ledger than this one filled a sink, else None. `errors`: the error of
    each sink that could not be compared; such a sink is not in `sinks`.
    """
    return {
        "ok": found.ok,
        "sinks": {name: _sink(name, report, found) for name, report in found.sinks.items()},
        "errors": {name: worded_fields(error.as_fields()) for name, error in found.errors.items()},
        "since": found.since,
        "unsettled": found.unsettled,
        "replaying": found.replaying,
        "adopted_at": found.adopted_at,
        "removed_at": None if found.removed is None else found.removed.position,
        "digest": found.row_digest.value,
        "unseen": _unseen(found),
        "rows": None if found.rows is None else row_fields(found.rows),
        "other_ledger": found.other_ledger,
    }


def _sink(sink: SinkName, report: SinkReport, whole: "Verification") -> dict[str, object]:
    at = report.as_of
    removed = {} if whole.removed is None else whole.removed.totals.get(sink, {})
    return {
        **_compared(_total(report), sum(removed.values(), Totals()), ok=report.ok),
        "accounts": {
            name: _compared(each, removed.get(name, Totals()), ok=_is_good(name, each, report))
            for name, each in report.accounts.items()
        },
        "problems": report.problems,
        "unnamed": {name: totals.rows for name, totals in report.unnamed.items()},
        "unread": report.unread,
        "as_of": None if at is None else {"position": at, "batch_id": whole.batches.get(at)},
    }


def _total(report: SinkReport) -> AccountReport:
    expected = sum((account.expected for account in report.accounts.values()), Totals())
    found = sum((account.found for account in report.accounts.values()), Totals())
    return AccountReport(expected=expected, found=found)


def _compared(report: AccountReport, removed: Totals, *, ok: bool) -> dict[str, object]:
    return {
        "ok": ok,
        "rows_expected": report.expected.rows,
        "rows_found": report.found.rows,
        "rows_removed": removed.rows,
        "digest_expected": hexadecimal(report.expected.digest),
        "digest_found": hexadecimal(report.found.digest),
        **({"files_kept": report.kept.files} if report.kept.files else {}),
        **({"files_adopted": report.adopted.files, "rows_adopted": report.adopted.rows} if report.adopted.files else {}),
    }


def _is_good(account: AccountName, each: AccountReport, sink: SinkReport) -> bool:
    """Return whether the account holds what was decided, file by file where its files are compared."""
    if not sink.accounts:
        return sink.ok
    return each.ok and all(problem.account != account for problem in sink.problems)


def _unseen(found: "Verification") -> str | None:
    return _NULLS_UNSEEN if found.row_digest is RowDigest.XXHASH64 else None


def acceptance_fields(found: "Acceptance") -> dict[str, object]:
    """Return what `verify --accept-removed --json` prints: what `verify` finds, if `done` without what was accepted."""
    missing = [
        {
            "sink": each.sink,
            "account": each.account,
            "batches": each.batches,
            "files": each.totals.files,
            "rows": each.totals.rows,
            "size_bytes": each.totals.size_bytes,
            "digest": hexadecimal(each.totals.digest),
            "unchecked": {"files": each.unchecked.files, "rows": each.unchecked.rows},
            "oldest": _entry_fields(each.oldest),
            "newest": _entry_fields(each.newest),
        }
        for each in found.files
    ]
    withheld = [
        {
            "sink": sink,
            "account": each.account,
            "rows": each.older.rows,
            "unchecked": {"files": each.unchecked.files, "rows": each.unchecked.rows},
        }
        for sink, each in found.withheld
    ]
    removal = {"done": found.done, "positions": found.positions, "missing": missing, "withheld": withheld}
    return {**fields_of(found.verification), "removal": removal}


def _entry_fields(entry: Entry | None) -> dict[str, object] | None:
    return (
        None
        if entry is None
        else {"position": entry.position, "batch_id": _batch_of(entry), "written_at_ms": entry.written_at_ms}
    )


def verify(
    *,
    file: File,
    sink: Annotated[str | None, typer.Option(metavar="NAME", help="Only this sink.")] = None,
    since: Annotated[
        int | None,
        typer.Option(metavar="BATCH", help="Read only the files of later batches than this one; sinks of type parquet."),
    ] = None,
    accept_removed: Annotated[
        bool, typer.Option("--accept-removed", help="Show which whole files are missing; with --yes expect them no more.")
    ] = False,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="BATCH|DATE",
            help="With --accept-removed: only files of batches before this one, or decided before this date or time.",
            show_default=False,
        ),
    ] = None,
    forgotten: Annotated[
        bool,
        typer.Option(
            "--forgotten",
            help="With --accept-removed: also some files of batches that the ledger has forgotten; others are taken as they are.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the ledger. Needed with --yes.")] = "",
    yes: Yes = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Read every row of every sink and compare with the ledger: loss, duplicates, changes, foreign files. Exit code 5 if any.

    Works beside a running driver: each sink is compared as of one position of the ledger, and what is newer is left out. A sink
    that cannot be read does not end it: the others are compared, and if none differs, the exit code is that of its error.
    """
    if accept_removed and since is not None:
        raise Usage("--since with --accept-removed.", remedy="Leave --since out: what is missing is judged by all that is there.")
    _require_fitting(reason, accepting=accept_removed, yes=yes, other=forgotten or before is not None)
    opened = pipeline(file, overrides)
    if accept_removed:
        accepted = opened.accept_removed(sink, before=before, forgotten=forgotten, reason=reason, yes=yes)
        show(accepted, as_json=as_json, text=acceptance_text, fields=acceptance_fields)
        found = accepted.verification
    else:
        found = opened.verify(sink, since=since)
        show(found, as_json=as_json, text=_text, fields=fields_of)
    if found.differs:
        raise typer.Exit(DIFFERENCE)
    for error in found.errors.values():
        raise typer.Exit(error.exit_code)


def _require_fitting(reason: str, *, accepting: bool, yes: bool, other: bool) -> None:
    if not accepting and (yes or other or reason):
        raise Usage(
            "--yes, --before, --forgotten and --reason belong to --accept-removed.",
            remedy="Add --accept-removed, or leave them out.",
        )
    if yes and not reason.strip():
        raise Usage("--yes without --reason.", remedy="Say why with --reason; the ledger keeps it.")


def acceptance_text(found: "Acceptance") -> RenderableType:
    """Render what `verify` found, then what is missing and whether that was accepted."""
    compared = _text(found.verification, accepting=True)
    withheld = [_withheld(sink, each) for sink, each in found.withheld]
    if not found.files:
        none = Text("No file is missing that can be accepted as removed on purpose.")
        never = [] if found.verification.ok or withheld else [Text(_NEVER_ACCEPTED)]
        return Group(compared, Text(), *withheld, *([] if withheld else [none]), *never)
    columns = ("sink", "account", "batches", "files", "rows", "size", "decided")
    listed = table(columns, [_missing_row(each) for each in found.files])
    files = formatting.counted(sum(each.totals.files for each in found.files), "file")
    rows = formatting.counted(sum(each.totals.rows for each in found.files), "row")
    unchecked = [_unchecked(each) for each in found.files if each.unchecked.files]
    if found.done:
        at = ", ".join(map(str, found.positions))
        done = Text(f"Accepted as removed on purpose, at position {at} of the ledger: {files} with {rows}.", "green")
        return Group(listed, *unchecked, done, *withheld, Text(), compared)
    asked = Text(f"Missing, with nothing else wrong there: {files} with {rows}. Nothing was changed.", "yellow")
    how = Text("If all of it was removed on purpose, record that with --yes --reason TEXT.", "yellow")
    return Group(compared, Text(), listed, *unchecked, *withheld, asked, how)


def _unchecked(each: "RemovedFiles") -> Text:
    files, rows = formatting.counted(each.unchecked.files, "file"), formatting.counted(each.unchecked.rows, "row")
    return Text(f"{each.sink} {each.account}: {files} with {rows} of forgotten batches are left, and are taken as they are.")


def _withheld(sink: SinkName, each: MissingFiles) -> Text:
    missing = formatting.counted(each.older.rows, "row")
    files, rows = formatting.counted(each.unchecked.files, "file"), formatting.counted(each.unchecked.rows, "row")
    return Text(
        f"{sink} {each.account}: {missing} of batches that the ledger has forgotten are missing, and {files} with {rows} of such "
        "batches are left. The ledger cannot check these one by one any more: --forgotten accepts what is missing, and takes "
        "what is left as it is.",
        "yellow",
    )


def _missing_row(each: "RemovedFiles") -> tuple[object, ...]:
    older = "some forgotten" if each.unchecked.files else "all forgotten"
    batches = formatting.count(each.batches)
    return (
        each.sink,
        each.account,
        batches if each.oldest is not None else f"{older} + {batches}" if each.batches else older,
        formatting.count(each.totals.files),
        formatting.count(each.totals.rows),
        formatting.size(each.totals.size_bytes),
        _decided_between(each.oldest, each.newest),
    )


def _decided_between(oldest: Entry | None, newest: Entry | None) -> str:
    if newest is None:
        return "before all that the ledger retains"
    end = f"batch {_batch_of(newest)}, {formatting.moment_of_year(newest.written_at_ms)}"
    if oldest is None:
        return f"up to {end}"
    if oldest.position == newest.position:
        return end
    return f"batch {_batch_of(oldest)}, {formatting.moment_of_year(oldest.written_at_ms)} to {end}"


def _batch_of(entry: Entry) -> int:
    return decision_in(entry).batch.batch_id


def _text(found: "Verification", *, accepting: bool = False) -> RenderableType:
    lines = [
        (
            name,
            account,
            formatting.count(each.expected.rows),
            formatting.count(each.found.rows),
            _digest(each, sink),
            Text("ok", "green") if _is_good(account, each, sink) else Text("DIFFERENT", "bold red"),
        )
        for name, sink in found.sinks.items()
        for account, each in (sink.accounts or {AccountName(""): _total(sink)}).items()
    ]
    problems = [(name, problem) for name, sink in found.sinks.items() for problem in sink.problems]
    parts: list[RenderableType] = [table(("sink", "account", "expected", "found", "content digest", ""), lines), Text()]
    parts += [Text(line) for line in (*_compared_at(found), *_removed(found), *_kept(found), *_unnamed(found))]
    parts += [] if found.rows is None else [row_text(found.rows)]
    parts += [_problem(name, problem) for name, problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        parts.append(Text(f"… and {formatting.counted(len(problems) - _PROBLEMS_SHOWN, 'problem')} more; --json lists all."))
    parts += [_not_compared(name, error) for name, error in found.errors.items()]
    parts.append(_conclusion(found, accepting=accepting))
    if (unseen := _unseen(found)) is not None:
        parts.append(Text(unseen))
    uncompared = [name for name, sink in found.sinks.items() if sink.as_of is None]
    if uncompared:
        why = "its rows are not kept, or only by its driver's process" if found.since is None else _NO_SINCE
        parts.append(Text(f"Nothing of {', '.join(uncompared)} was compared: {why}."))
    unread = [name for name, sink in found.sinks.items() if sink.unread]
    if unread:
        parts.append(Text(f"Of {', '.join(unread)} only publications were compared, not rows: your SQL decides which are there."))
    return Group(*parts)


def _digest(each: AccountReport, sink: SinkReport) -> str:
    if sink.unread:
        return "not read"
    expected, shown = hexadecimal(each.expected.digest), hexadecimal(each.found.digest)
    return shown if shown == expected else f"{shown}, expected {expected}"


def _compared_at(found: "Verification") -> Iterator[str]:
    """Yield one line per position that sinks were compared as of, and one for an unsettled batch."""
    names: dict[Position, list[str]] = {}
    for name, sink in found.sinks.items():
        if sink.as_of is not None:
            names.setdefault(sink.as_of, []).append(name)
    for at, sinks in names.items():
        batch = f" (batch {found.batches[at]})" if at in found.batches else ""
        yield f"{', '.join(sinks)}: as of position {at} of the ledger{batch}."
    if found.unsettled is not None:
        yield with_file(
            f"Batch {found.unsettled} is decided, was not published everywhere, and is left out: a running driver publishes it, "
            "else `penstock recover` does."
        )
    if found.replaying is not None:
        yield with_file(
            f"What was replayed at position {found.replaying} of the ledger was not published everywhere, and is left out: the "
            "next start publishes it, or `penstock recover FILE`."
        )


def _removed(found: "Verification") -> Iterator[str]:
    """Yield one line per sink of which rows were removed on purpose."""
    removed = found.removed
    if removed is None:
        return
    when = "" if removed.accepted_at_ms is None else f", {formatting.moment_of_year(removed.accepted_at_ms)}"
    for name in found.sinks:
        totals = sum(removed.totals.get(name, {}).values(), Totals())
        if totals.files:
            yield (
                f"{name}: {formatting.counted(totals.rows, 'row')} of {formatting.counted(totals.files, 'file')} were removed on "
                f"purpose and are not expected (accepted last at position {removed.position}{when})."
            )


def _kept(found: "Verification") -> Iterator[str]:
    for name, sink in found.sinks.items():
        kept = sum((account.kept for account in sink.accounts.values()), Totals())
        if kept.files:
            yield f"{name}: {formatting.counted(kept.files, 'file')} of others left out, as existing_rows: keep wants it."
        adopted = sum((account.adopted for account in sink.accounts.values()), Totals())
        if adopted.files:
            yield (
                f"{name}: {formatting.counted(adopted.files, 'file')} of {formatting.counted(adopted.rows, 'row')} that it was "
                "taken over with, by name and size."
            )


def _unnamed(found: "Verification") -> Iterator[str]:
    """Yield one line per account that the pipeline file no longer names."""
    for name, sink in found.sinks.items():
        for account, totals in sink.unnamed.items():
            rows = formatting.counted(totals.rows, "row was", "rows were")
            yield f"{name}: {rows} decided for account {account}, which the pipeline file does not name. Nobody looked there."


def _conclusion(found: "Verification", *, accepting: bool) -> RenderableType:
    """Render what follows from it. `accepting`: what was removed on purpose is shown below, and needs no other command."""
    if found.other_ledger is not None:
        return Text.assemble(("The sinks do not hold what the ledger says.\n", "bold red"), found.other_ledger)
    if found.differs:
        was_removed = not accepting and any(sink.missing for sink in found.sinks.values())
        on_purpose = with_file(f"\n{_ON_PURPOSE}") if was_removed else ""
        is_foreign = any(_IS_FOREIGN in problem.message for sink in found.sinks.values() for problem in sink.problems)
        foreign = f"\n{_REMEDY_FOR_FOREIGN}" if is_foreign else ""
        return Text.assemble(("The sinks do not hold what the ledger says.\n", "bold red"), _REMEDY, foreign, on_purpose)
    if found.errors or all(sink.as_of is None for sink in found.sinks.values()):
        known = f"Nothing is known of {', '.join(found.errors)}. What was compared is as the ledger has it."
        nothing = "Nothing was compared: no sink keeps its rows where this command can read them."
        return Text(known if found.errors else nothing, "yellow")
    if found.since is not None:
        return Text(f"Every row decided after batch {found.since} is in its place once. What is older was not read.", "green")
    left_out = ["what was removed on purpose"] * (found.removed is not None)
    left_out += ["accounts that the pipeline file does not name"] * any(sink.unnamed for sink in found.sinks.values())
    but = f", but for {' and '.join(left_out)}," if left_out else ""
    if found.adopted_at is None:
        return Text(f"Every row of the ledger{but} is in its place once, and nothing else is.", "green")
    return Text.assemble(
        (f"Every row that the ledger decided{but} is in its place, and nothing else is.\n", "green"),
        f"Each record is there once since the adoption at position {found.adopted_at}; "
        "records that were delivered before it can be there twice.",
    )


def _not_compared(sink: SinkName, error: PenstockError) -> RenderableType:
    text = with_file(scrub(str(error)))
    return Text.assemble((f"{sink}: ", "bold"), ("not compared. ", "bold red"), text)


def _problem(sink: str, problem: Problem) -> RenderableType:
    place = " ".join(
        part
        for part in (
            f"account {problem.account}" if problem.account else "",
            f"file {problem.file}" if problem.file else "",
            f"batch {problem.batch_id}" if problem.batch_id is not None else "",
        )
        if part
    )
    return Text.assemble((f"{sink}: ", "bold"), problem.message, f" ({place})" if place else "")
