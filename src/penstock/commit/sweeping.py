"""Collecting staged rows that can never be decided any more, sink by sink."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.commit.publication import dead_staging
from penstock.core.model import Entry
from penstock.errors import PenstockError
from penstock.protocols import HasStaging, Sink


def sweep_sinks(
    sinks: Sequence[Sink], tail: Entry, newest: Entry | None, *, dry_run: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Collect, or only name, the staging that is dead by the ledger's `tail` and its `newest` decision (I10).

    Returns the names of what was collected, and warnings: garbage that stays does not stop a delivery.
    """
    cut = dead_staging(tail, newest)
    swept: list[str] = []
    warnings: list[str] = []
    for sink in sinks:
        with _warning(warnings, f"Sink {sink.name!r} could not be swept"):
            swept += sink.sweep(cut, dry_run=dry_run)
        if isinstance(sink, HasStaging) and not dry_run:  # after the sweep, which may have made the room for it
            with _warning(warnings, f"The staging of sink {sink.name!r} could not be signed"):
                sink.sign(tail)
    return tuple(swept), tuple(warnings)


@contextmanager
def _warning(warnings: list[str], what: str) -> Iterator[None]:
    """Append an error to `warnings` instead of raising it."""
    try:
        yield
    except PenstockError as error:
        warnings.append(f"{what}: {error}")
