"""The interface of the fakes to the scheduler: each operation of a store calls it before and, after a fault, again."""

from typing import Protocol

from penstock.testing.simulator.schedule import Kind


class Stepper(Protocol):
    """The driver on whose behalf an operation happens."""

    def before(self, operation: str, subject: str) -> Kind | None:
        """Called before an operation; may let other drivers run first. A returned fault goes to `after`.

        Raises Retryable (the operation must not happen) or KilledError.
        """
        ...

    def after(self, fault: Kind, operation: str) -> None:
        """Called after an operation for which `before` returned a fault. Raises OutcomeUnknown or KilledError."""
        ...
