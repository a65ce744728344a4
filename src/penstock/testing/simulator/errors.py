"""Exceptions that end a run of the simulator, or a driver in it."""


class ViolationError(Exception):
    """An invariant does not hold: a bug of the protocol, or of the simulator."""


class KilledError(BaseException):
    """The driver is dead. Whatever its code still does while it unwinds has no effect on any store."""


class SparkStoppedError(Exception):
    """Spark stopped the query: its checkpoint could not be written, or another query wrote there."""
