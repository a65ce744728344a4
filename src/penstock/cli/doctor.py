"""`penstock doctor`: shows what is pending and what needs the operator's attention, without Spark and without Java."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import show, with_file
from penstock.cli.table import facts, table
from penstock.errors import Failed
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.run.doctor import Diagnosis

_STYLES = {
    "published": "green",
    "empty": "cyan",
    "outstanding": "yellow",
    "lost": "bold red",
    "foreign": "bold red",
    "ahead": "bold red",
    "unwritable": "bold red",
    "unreachable": "bold red",
}
_NAMES = {"unwritable": "cannot be written"}

End = Annotated[
    str | None,
    typer.Option("--end", metavar="NAME", help="First end the open transaction of this name, as listed.", show_default=False),
]


def doctor(*, file: File, overrides: Overrides = None, end: End = None, as_json: Json = False) -> None:
    """What is staged and not published, which account lacks the newest decision, what a store would delete by itself.

    Also which transactions keep readers of Kafka's topics waiting. Only looks, but for `--end`; Spark is not started. Exit code 1
    if a decision is outstanding, an account is lost, another ledger's or cannot be looked at or written, a transaction hangs, or
    a start would refuse the checkpoint. It also names the error that ended the newest run: the next start shows whether it is
    mended.
    A running driver publishes what it decided in the next moment: look again before you do anything.
    """
    opened = pipeline(file, overrides)
    if end is not None:
        opened.end_transaction(end)
    found = opened.doctor()
    show(found, as_json=as_json, text=text_of)
    if not found.ok:
        raise typer.Exit(Failed.exit_code)


def text_of(found: "Diagnosis") -> RenderableType:
    """Render a diagnosis: facts, accounts, pending pieces, and what to do."""
    accounts = [
        (one.sink, one.account, Text(_NAMES.get(one.state, one.state), _STYLES.get(one.state, "")), one.mark, one.batch_id)
        for one in found.accounts
    ]
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
        rows = []
        for one in found.transactions:
            ends = "never by itself" if one.timeout_ms is None else f"{formatting.duration(one.timeout_ms)} after its begin"
            place = f"{one.topic}-{one.partition} offset {one.offset}"
            rows.append((one.name, f"{formatting.duration(one.open_ms)} ago", place, ends))
        parts += [table(("open transaction", "since", "held up from", "ends"), rows), Text()]
    parts += [
        Text(with_file(f"{f'{one.sink} {one.account}'.rstrip()}: {one.trouble}"), "red")
        for one in found.accounts
        if one.trouble is not None
    ]
    return Group(*parts, *_advice(found, pending=bool(heaps)))


def _facts(found: "Diagnosis") -> list[tuple[str, object]]:
    generation = None if found.generation is None else f"{found.generation}, opened by {found.owner or 'an older run'}"
    newest = "none yet" if found.position is None else f"batch {found.batch_id}, position {found.position}"
    return [
        ("ledger", f"{found.ledger}, {formatting.counted(found.entries, 'entry', 'entries')} so far"),
        ("generation", generation),
        ("newest decision", newest),
    ]


def _heaps(found: "Diagnosis") -> Iterator[tuple[object, ...]]:
    for one in found.accounts:
        kinds = (("of the newest decision", one.decided), ("of the running generation", one.running), ("dead", one.dead))
        for kind, pending in kinds:
            if pending.pieces:
                size = None if pending.size_bytes is None else formatting.size(pending.size_bytes)
                batch, generation = pending.oldest_batch, pending.oldest_generation
                oldest = None if batch is None else f"batch {batch}, generation {generation}"
                yield one.sink, one.account, kind, formatting.count(pending.pieces), size, oldest


def _advice(found: "Diagnosis", *, pending: bool) -> Iterator[Text]:
    if waiting := _in_state(found, "outstanding"):
        sentence = f"Batch {found.batch_id} is decided and not published in {waiting}"
        yield Text(with_file(f"{sentence}: unless a driver runs, `penstock recover` publishes it, or the next start."), "yellow")
    if gone := _in_state(found, "lost"):
        sentence = f"What was published in {gone} is not there, or an older copy is"
        yield Text(f"{sentence}: mount that place, or restore its newest copy, before the next start.", "red")
    if foreign := _in_state(found, "foreign"):
        filled = f"Another ledger of pipeline {found.pipeline!r} filled {foreign}"
        yield Text(f"{filled}: put that ledger in the place of {found.ledger}; a start with this one is refused.", "red")
    if ahead := _in_state(found, "ahead"):
        sentence = f"{found.ledger} is an older copy: {ahead} shows batches that it does not hold"
        yield Text(f"{sentence}. Put the newest ledger in its place; a start with this one is refused.", "red")
    if any(one.dead.pieces for one in found.accounts):
        yield Text(with_file("What is dead can never be published: the next start collects it, or `penstock sweep --yes`."))
    if found.refused is not None:
        yield Text(with_file(f"A start would be refused: {found.refused}"), "red")
    for name in dict.fromkeys(one.name for one in found.transactions if one.hangs):
        sentence = f"Transaction {name} hangs: readers of committed records wait there for ever"
        own = "The next start ends one of this pipeline, with its own outcome"
        by_hand = f"If it stays, and its writer is gone, `penstock doctor FILE --end {name}` aborts it"
        yield Text(with_file(f"{sentence}. {own}. {by_hand}."), "red")
    for finding in found.findings:
        yield Text(
            f"{'warning: ' if finding.warns else ''}{finding.subject}: {finding.message}", "yellow" if finding.warns else "dim"
        )
    yield from _ending(found, is_clear=not pending and found.ok)


def _ending(found: "Diagnosis", *, is_clear: bool) -> Iterator[Text]:
    """Yield what ended the newest run, unless a start would be refused for that, or that nothing is pending."""
    clear = "Nothing was delivered yet" if found.position is None else "Nothing is pending"
    if found.failure is not None and found.failure.message not in (found.refused or ""):
        when = formatting.ago(found.failure.at_ms, now_ms=int(time.time() * 1000))
        what = f"{f'{clear}, but the' if is_clear else 'The'} newest run ended with an error {when}"
        yield Text(with_file(f"{what}: {found.failure.message} {found.failure.remedy}"), "red")
    elif is_clear:
        yield Text(f"{clear}.", "green")


def _in_state(found: "Diagnosis", state: str) -> str:
    return ", ".join(f"{one.sink} {one.account}".rstrip() for one in found.accounts if one.state == state)
