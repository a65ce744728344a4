"""What a look at several pipelines finds: the status of each, or why it could not be read."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.observe.status import Status
from penstock.observe.status_reader import StatusReader
from penstock.support.secret import scrub


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What looking at one pipeline found: its status, or why it could not be read."""

    pipeline: str
    status: Status | None = None
    error: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether a start would be accepted, and every place of the pipeline answers."""
        status = self.status
        return status is not None and status.health != "conflict" and all(place.trouble is None for place in status.places)

    @property
    def text(self) -> str:
        """What was found, in a sentence."""
        if self.status is None:
            return self.error or ""
        return " ".join([self.status.text, *(place.trouble for place in self.status.places if place.trouble is not None)])


def looks(readers: Sequence[StatusReader]) -> list[Look]:
    """Look at all pipelines side by side, so that one whose stores do not answer holds up no other."""
    with ThreadPoolExecutor(len(readers)) as threads:
        return list(threads.map(look_at, readers))


def look_at(reader: StatusReader) -> Look:
    """Look at one pipeline. Raises nothing: what is wrong is in the result."""
    try:
        return Look(pipeline=reader.pipeline, status=reader.status())
    except PenstockError as error:
        return Look(pipeline=reader.pipeline, error=scrub(str(error)))
    except Exception as error:  # noqa: BLE001 - what is wrong with one pipeline shall not hide the others
        return Look(pipeline=reader.pipeline, error=scrub(f"{type(error).__name__}: {error}"))
