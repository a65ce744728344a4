"""The interface of the fakes to the scheduler, which does each of their operations, and the exceptions that end a run."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class ViolationError(Exception):
    """An invariant does not hold: a bug of the protocol, or of the simulator."""


class KilledError(BaseException):
    """The driver is dead. Whatever its code still does while it unwinds has no effect on any store."""


class SparkStoppedError(Exception):
    """Spark stopped the query: its checkpoint could not be written, or another query wrote there."""


class Stepper(Protocol):
    """The driver on whose behalf an operation happens."""

    def do(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        """Do one step: let other drivers run first, perhaps, then `act`, unless a fault forbids it.

        Raises Retryable (`act` did not happen), OutcomeUnknown (it happened, and its answer is lost) or KilledError.
        """
