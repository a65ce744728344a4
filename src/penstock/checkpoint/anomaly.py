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


def restore_or_plan_anew(batch_id: int) -> str:
    """The remedy for `offsets/<batch_id>`, the newest, torn: a machine that goes down leaves it so, and nobody has a copy."""
    entry = f"offsets/{batch_id} and offsets/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry} if `penstock history` has no batch {batch_id}: Spark plans it anew."


def restore_or_run_again(batch_id: int) -> str:
    """The remedy for `commits/<batch_id>`, the newest, of the newest batch that is planned."""
    entry = f"commits/{batch_id} and commits/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry}: batch {batch_id} runs again, which Penstock recognises."
