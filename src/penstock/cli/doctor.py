"""`penstock doctor`: shows what is pending and what needs the operator's attention, without Spark and without Java."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import formatting
from penstock.cli.opening import pipeline
from penstock.cli.options import File, Json, Overrides
from penstock.cli.output import show
from penstock.errors import Failed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from penstock.core.open_transaction import OpenTransaction
    from penstock.run.doctor import AccountState, Diagnosis, PendingPieces

_STYLES = {
    "published": "green",
    "outstanding": "yellow",
    "lost": "bold red",
    "foreign": "bold red",
    "behind": "bold red",
    "unreachable": "bold red",
}
_DECIDED = "of the newest decision"
_RUNNING = "of the running generation"
_DEAD = "dead"


End = Annotated[
    str | None,
    typer.Option("--end", metavar="NAME", help="First end the open transaction of this name, as listed.", show_default=False),
]


def doctor(*, file: File, overrides: Overrides = None, end: End = None, as_json: Json = False) -> None:
    """What is staged and not published, which account lacks the newest decision, what a store would delete by itself.

    Also which transactions keep readers of Kafka's topics waiting. Only looks, but for `--end`; Spark is not started. Exit code 1
    if a decision is outstanding, an account is lost, another ledger's or cannot be looked at, or a transaction hangs. A running
    driver publishes what it decided in the next moment: look again before you do anything.
    """
    opened = pipeline(file, overrides)
    if end is not None:
        opened.end_transaction(end)
    found = opened.doctor()
    show(found, as_json=as_json, text=text_of)
    if not found.ok:
        raise typer.Exit(Failed.exit_code)


def text_of(found: "Diagnosis") -> "RenderableType":
    """Render a diagnosis: facts, accounts, pending pieces, and what to do."""
    from rich.console import Group
    from rich.text import Text

    from penstock.cli.table import facts, table

    accounts = [(one.sink, one.account, _state(one), one.mark, one.batch_id) for one in found.accounts]
    parts: list[RenderableType] = [
        Text(found.pipeline, "bold"),
        facts(_facts(found)),
        Text(),
        table(("sink", "account", "", "position", "batch"), accounts),
        Text(),
    ]
    heaps = list(_heaps(found))
    if heaps:
        parts += [table(("sink", "account", "pending", "pieces", "size", "oldest"), heaps), Text()]
    if found.transactions:
        parts += [table(("open transaction", "since", "held up from", "ends"), map(_transaction, found.transactions)), Text()]
    return Group(*parts, *_advice(found, pending=bool(heaps)))


def _facts(found: "Diagnosis") -> list[tuple[str, object]]:
    generation = None if found.generation is None else f"{found.generation}, opened by {found.owner or 'an older run'}"
    newest = "none yet" if found.position is None else f"batch {found.batch_id}, position {found.position}"
    return [
        ("ledger", f"{found.ledger}, {formatting.counted(found.entries, 'entry', 'entries')} so far"),
        ("generation", generation),
        ("newest decision", newest),
    ]


def _state(one: "AccountState") -> "Text":
    from rich.text import Text

    return Text(one.state, _STYLES.get(one.state, ""))


def _heaps(found: "Diagnosis") -> Iterator[tuple[object, ...]]:
    for one in found.accounts:
        for kind, pending in ((_DECIDED, one.decided), (_RUNNING, one.running), (_DEAD, one.dead)):
            if pending.pieces:
                size = None if pending.size_bytes is None else formatting.size(pending.size_bytes)
                yield one.sink, one.account, kind, formatting.count(pending.pieces), size, _oldest(pending)


def _transaction(one: "OpenTransaction") -> tuple[object, ...]:
    ends = "never by itself" if one.timeout_ms is None else f"{formatting.duration(one.timeout_ms)} after its begin"
    return one.name, f"{formatting.duration(one.open_ms)} ago", f"{one.topic}-{one.partition} offset {one.offset}", ends


def _oldest(pending: "PendingPieces") -> str | None:
    return None if pending.oldest_batch is None else f"batch {pending.oldest_batch}, generation {pending.oldest_generation}"


def _advice(found: "Diagnosis", *, pending: bool) -> "Iterator[Text]":
    from rich.text import Text

    for one in found.accounts:
        if one.trouble is not None:
            yield Text(f"{one.sink} {one.account}: {one.trouble}", "red")
    waiting = [f"{one.sink} {one.account}".rstrip() for one in found.accounts if one.state == "outstanding"]
    if waiting:
        sentence = f"Batch {found.batch_id} is decided and not published in {', '.join(waiting)}"
        yield Text(f"{sentence}: unless a driver runs, `penstock recover` publishes it, or the next start.", "yellow")
    gone = [f"{one.sink} {one.account}".rstrip() for one in found.accounts if one.state == "lost"]
    if gone:
        sentence = f"Batch {found.batch_id} was published in {', '.join(gone)}, and the mark that says so there is not"
        yield Text(f"{sentence}: mount it, or restore its newest copy, before the next start.", "red")
    yield from (Text(sentence, "red") for sentence in _of_other_ledgers(found))
    if any(one.dead.pieces for one in found.accounts):
        yield Text("What is dead can never be published: the next start collects it, or `penstock sweep --yes`.")
    for name in dict.fromkeys(one.name for one in found.transactions if one.hangs):
        sentence = f"Transaction {name} hangs: readers of committed records wait there for ever"
        yield Text(f"{sentence}. Once its writer is known to be gone, `penstock doctor --end {name}` ends it.", "red")
    for finding in found.findings:
        yield Text(
            f"{'warning: ' if finding.warns else ''}{finding.subject}: {finding.message}", "yellow" if finding.warns else "dim"
        )
    if not pending and found.ok:
        yield Text("Nothing is pending.", "green")


def _of_other_ledgers(found: "Diagnosis") -> Iterator[str]:
    foreign, ahead = (
        ", ".join(f"{one.sink} {one.account}".rstrip() for one in found.accounts if one.state == state)
        for state in ("foreign", "behind")
    )
    if foreign:
        filled = f"Another ledger of pipeline {found.pipeline!r} filled {foreign}"
        yield f"{filled}: put that ledger in the place of {found.ledger}; a start with this one is refused."
    if ahead:
        sentence = f"{found.ledger} is an older copy: {ahead} shows batches that it does not hold"
        yield f"{sentence}. Put the newest ledger in its place; a start with this one is refused."


def add_to(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command(rich_help_panel="Look")(doctor)
