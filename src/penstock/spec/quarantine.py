"""Settings of the quarantine, the place for records that cannot be decoded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from penstock.spec.account import Account
from penstock.spec.state_location import url_mapping

if TYPE_CHECKING:
    from os import PathLike


class Quarantine(Account):
    """Where records go that cannot be decoded: Parquet files, committed with the batch that they came with."""

    max_rows: int = Field(
        default=10_000,
        ge=1,
        description="More such records in one batch fail it: then more is wrong than some records.",
    )
    max_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        strict=False,
        description="As `max_rows`, as a share of the offsets that the batch reads of the sources that decode.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: "str | PathLike[str]",
            options: Mapping[str, Any] = ...,
            max_rows: int = 10_000,
            max_share: float = 1.0,
        ) -> None: ...


ShortQuarantine = Annotated[Quarantine, BeforeValidator(url_mapping, json_schema_input_type=str | Quarantine)]
"""A quarantine, or just its URL."""
