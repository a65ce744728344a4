"""What surrounds a batch: measuring it, pruning the ledger, sweeping dead staging, maintaining targets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from penstock.commit.publication import dead_staging
from penstock.core.model import Entry, Position, Publication
from penstock.errors import Failed, PenstockError, Retryable
from penstock.protocols import HasStaging, Ledger, Sink, requesting, requests_since, requests_so_far

RETAINED_ENTRIES = 10_000
PRUNE_EVERY = 1_000


class PublicationMeter:
    """Measures the milliseconds and the billed requests that publishing a batch takes; the next batch's decision records them.

    `counts_requests` is False where two batches run side by side, so that their requests cannot be told apart.
    """

    def __init__(self, places: Iterable[object], now_ms: Callable[[], int], *, counts_requests: bool) -> None:
        self._places, self._now_ms = requesting(places), now_ms
        self.counts_requests = counts_requests
        self.publish_ms: int | None = None
        self.requests: int | None = None
        self._requests_before: int | None = None
        self._began_ms = 0

    def start(self) -> None:
        """Called before a batch is decided."""
        self._requests_before, self._began_ms = requests_so_far(self._places), self._now_ms()

    def decided(self) -> int:
        """Called when it is decided; returns the milliseconds since `start`."""
        began_ms, self._began_ms = self._began_ms, self._now_ms()
        return self._began_ms - began_ms

    def published(self) -> int:
        """Called when it is published everywhere; returns the milliseconds since `decided`."""
        self.publish_ms = self._now_ms() - self._began_ms
        return self.publish_ms

    def ended(self) -> None:
        """Called when nothing of the batch is left to do."""
        self.requests = requests_since(self._requests_before, self._places) if self.counts_requests else None


class Pruning:
    """Prunes a ledger to its newest `retained` entries, about once in `every`, and again with the next batch if that failed."""

    def __init__(self, ledger: Ledger, *, retained: int, every: int) -> None:
        self._ledger, self._retained, self._every = ledger, retained, every
        self._is_due = False

    def after(self, tail: Position, *, previous: Position) -> tuple[str, ...]:
        """Called after each batch, with the position of its decision, the ledger's tail, and that of the decision before it.

        Where each run delivers one batch, openings stand between them, and no decision need be at a multiple of `every`. A
        failure to prune is returned as a warning.
        """
        self._is_due = self._is_due or (tail // self._every > previous // self._every and tail > self._retained)
        if not self._is_due:
            return ()
        try:
            self._ledger.prune(below=Position(tail - self._retained))
        except (Retryable, Failed) as error:
            return (f"The ledger at {self._ledger.location} could not be pruned: {error}",)
        self._is_due = False
        return ()


def sweep_sinks(
    sinks: Sequence[Sink], tail: Entry, newest: Entry | None, *, waiting: Iterable[Entry]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Collect the staging that is dead by the ledger's `tail`, its `newest` decision and `waiting` batches of backfills (I10).

    Returns the names of what was collected, and warnings: garbage that stays does not stop a delivery.
    """
    cut = dead_staging(tail, newest, waiting=waiting)
    swept: list[str] = []
    warnings: list[str] = []
    for sink in sinks:
        with _warning(warnings, f"Sink {sink.name!r} could not be swept"):
            swept += sink.sweep(cut, dry_run=False)
        if isinstance(sink, HasStaging):  # after the sweep, which may have made the room for it
            with _warning(warnings, f"The staging of sink {sink.name!r} could not be signed"):
                sink.sign(tail)
    return tuple(swept), tuple(warnings)


@runtime_checkable
class MaintainsTarget(Protocol):
    """A sink that looks after its target beside its deliveries: it writes small files as larger ones, say."""

    def maintain_target(self, publication: Publication) -> Sequence[str]:
        """Do what is due. Return warnings: what fails there costs neither rows nor exactness. Raises PenstockError at most.

        Called once for each batch that this run decided, when every sink has published it, and before the next one is decided.
        """
        ...


def maintain_targets(sinks: Sequence[Sink], publication_of: Callable[[Sink], Publication]) -> tuple[str, ...]:
    """Have sinks look after their targets once a batch is published everywhere. Return warnings: the batch is delivered."""
    warnings: list[str] = []
    for sink in sinks:
        if isinstance(sink, MaintainsTarget):
            with _warning(warnings, f"The target of sink {sink.name!r} could not be maintained"):
                warnings += sink.maintain_target(publication_of(sink))
    return tuple(warnings)


@contextmanager
def _warning(warnings: list[str], what: str) -> Iterator[None]:
    """Append an error to `warnings` instead of raising it."""
    try:
        yield
    except PenstockError as error:
        warnings.append(f"{what}: {error}")
