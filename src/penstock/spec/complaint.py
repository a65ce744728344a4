"""Complaints about a pipeline file, each a mistake with remedy and key, and the exception that takes them through pydantic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic_core import PydanticCustomError

KeyPath: TypeAlias = tuple[str | int, ...]

KIND = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One mistake. `at` is the key path from the validator's place to the value; `message` completes "<key> …"."""

    message: str
    remedy: str
    at: KeyPath = ()

    def below(self, path: KeyPath) -> "Complaint":
        """Return the same complaint with `path` in front of its key path."""
        return Complaint(message=self.message, remedy=self.remedy, at=path + self.at)


def complaints_error(complaints: Sequence[Complaint]) -> PydanticCustomError:
    """Return the exception that carries `complaints` (at least one) through pydantic."""
    return PydanticCustomError(KIND, "{message}", {"message": complaints[0].message, "complaints": tuple(complaints)})


def complaint_error(message: str, *, remedy: str, at: KeyPath = ()) -> PydanticCustomError:
    """Return the exception for a single complaint."""
    return complaints_error([Complaint(message=message, remedy=remedy, at=at)])


def dotted(path: KeyPath) -> str:
    """Return a key path as people write it: `sinks.lake.accounts`, `sinks.lake.partition_by[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
