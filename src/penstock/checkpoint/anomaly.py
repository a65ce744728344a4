"""What is odd in a checkpoint, and how bad it is."""

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How bad an anomaly is."""

    STOPS = "stops"
    """Spark will not start, or will stop at it."""
    LOSES = "loses"
    """Spark starts, and data may be passed over or delivered again."""
    HARMLESS = "harmless"
    """A trace of something that happened; nothing need be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One oddity: the file or directory it is about (relative), what is the matter, what to do."""

    place: str
    severity: Severity
    message: str
    remedy: str


RESTORE = "Restore the checkpoint from a copy."
