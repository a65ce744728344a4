"""What the fakes see of the scheduler: every operation of a store asks it before it happens, and tells it after."""

from typing import Protocol

from penstock.testing.simulator.schedule import Kind


class Stepper(Protocol):
    """The driver on whose behalf an operation happens."""

    def before(self, operation: str, subject: str) -> Kind | None:
        """Called before an operation; may let others run first. What it returns goes to `after`.

        Raises Retryable (the operation must not happen) or KilledError.
        """
        ...

    def after(self, fault: Kind, operation: str) -> None:
        """Called after an operation for which `before` returned a fault. Raises OutcomeUnknown or KilledError."""
        ...
