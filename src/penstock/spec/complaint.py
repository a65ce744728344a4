"""What is wrong with one place of a pipeline file, said for people; and how a validator says it to pydantic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic_core import PydanticCustomError

KeyPath: TypeAlias = tuple[str | int, ...]

KIND = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One mistake. `at` leads from where the validator stands to the value; `said` completes "<key> …"."""

    message: str
    remedy: str
    at: KeyPath = ()

    def below(self, path: KeyPath) -> "Complaint":
        """The same complaint as seen from `path` levels further up."""
        return Complaint(message=self.message, remedy=self.remedy, at=path + self.at)


def refuse(complaints: Sequence[Complaint]) -> PydanticCustomError:
    """The exception that carries `complaints` (at least one) through pydantic."""
    return PydanticCustomError(KIND, "{message}", {"message": complaints[0].message, "complaints": tuple(complaints)})


def wrong(message: str, *, remedy: str, at: KeyPath = ()) -> PydanticCustomError:
    """The exception for a single complaint."""
    return refuse([Complaint(message=message, remedy=remedy, at=at)])


def dotted(path: KeyPath) -> str:
    """A key path as people write it: `sinks.lake.accounts`, `sinks.lake.partition_by[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
