"""Settings of the maintenance that Penstock itself does in tables of open formats, beside its deliveries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from penstock.spec.complaint import complaint_error, described
from penstock.spec.scalar import Duration, Size
from penstock.spec.settings import Settings

_LEAST_MS: Final = 3_600_000
"""Readers of an older version may be at work, and other writers."""


class Compact(Settings):
    """How small files become larger ones."""

    target_file_size: Size | None = Field(
        default=None,
        description="Files below half of this size are small, and new ones get about this size. Without it, that of the sink.",
    )

    if TYPE_CHECKING:

        def __init__(self, *, target_file_size: int | str | None = None) -> None: ...


def _compact(value: Any) -> Any:
    """Return `true` as the mapping that it is short for."""
    if value is True:
        return {}
    if isinstance(value, Mapping | Settings):
        return value
    raise complaint_error(
        f"should be true or a mapping, found {described(value)}",
        remedy="Write compact: true, or compact: {target_file_size: 128MB}.",
    )


ShortCompact = Annotated[Compact, BeforeValidator(_compact, json_schema_input_type=Literal[True] | Compact)]
"""A compaction, or just `true`."""


class Maintenance(Settings):
    """Base of the settings of maintenance."""

    every: int = Field(
        default=100,
        ge=1,
        description="Batches of a run from one round to the next. The first round comes after as many.",
    )
    compact: ShortCompact | None = Field(
        default=None,
        description="`true`, or a mapping: small files of a partition become larger ones, by one commit that changes no row.",
    )


class DeltaMaintenance(Maintenance):
    """What Penstock does in a Delta table beside its deliveries; nothing that is not named."""

    vacuum_after: Duration | None = Field(
        default=None,
        description="Remove the sink's files that no version has which was the newest one within this time: `7d`, at least `1h`. "
        "Older versions cannot be read any more then. A table that is created keeps its log twice as long, 30 days at most.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            every: int = 100,
            compact: "Literal[True] | Compact | Mapping[str, Any] | None" = None,
            vacuum_after: int | str | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.compact is None and self.vacuum_after is None:
            raise _idle("vacuum_after: 7d")
        _require_long_enough(self.vacuum_after, key="vacuum_after")
        return self


class IcebergMaintenance(Maintenance):
    """What Penstock does in an Iceberg table beside its deliveries; nothing that is not named."""

    expire_snapshots_after: Duration | None = Field(
        default=None,
        description="Take snapshots out of the table that are older: `5d`, at least `1h`; and remove the files that only they "
        "had. Heads of branches, and what a tag names, stay.",
    )
    retain_last: int = Field(
        default=10, ge=1, description="With `expire_snapshots_after`: so many of the newest snapshots stay, however old they are."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            every: int = 100,
            compact: "Literal[True] | Compact | Mapping[str, Any] | None" = None,
            expire_snapshots_after: int | str | None = None,
            retain_last: int = 10,
        ) -> None: ...

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.compact is None and self.expire_snapshots_after is None:
            raise _idle("expire_snapshots_after: 5d")
        if self.expire_snapshots_after is None and "retain_last" in self.model_fields_set:
            raise complaint_error(
                "means nothing without expire_snapshots_after: no snapshot leaves",
                remedy="Add expire_snapshots_after: 5d, or take retain_last out.",
                at=("retain_last",),
            )
        _require_long_enough(self.expire_snapshots_after, key="expire_snapshots_after")
        return self


def _idle(example: str) -> PydanticCustomError:
    return complaint_error("names nothing to do", remedy=f"Add compact: true, or {example}.")


def _require_long_enough(after_ms: int | None, *, key: str) -> None:
    if after_ms is not None and after_ms < _LEAST_MS:
        raise complaint_error(
            "should be at least 1h: readers may be at work in an older version", remedy=f"Write {key}: 1h, or more.", at=(key,)
        )
