"""Anomalies found in a checkpoint, each with its severity and remedy."""

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """What an anomaly does to the next start."""

    STOPS = "stops"
    """Spark does not start, or fails when it reads the file."""
    LOSES = "loses"
    """Spark starts, but can skip data or deliver it again."""
    HARMLESS = "harmless"
    """A trace of a past event; no action is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly: the file or directory concerned (relative to the checkpoint), what is wrong, and the remedy."""

    place: str
    severity: Severity
    message: str
    remedy: str


RESTORE = "Restore the checkpoint from a copy."


def restore_or_plan_anew(batch_id: int) -> str:
    """Return the remedy for a torn newest `offsets/<batch_id>`: a machine that goes down leaves it torn, with no copy of it."""
    entry = f"offsets/{batch_id} and offsets/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry} if `penstock history` has no batch {batch_id}: Spark plans it anew."


def restore_or_run_again(batch_id: int) -> str:
    """Return the remedy for a torn newest `commits/<batch_id>` whose batch is also the newest planned one."""
    entry = f"commits/{batch_id} and commits/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry}: batch {batch_id} runs again, which Penstock recognises."
