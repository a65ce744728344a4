"""Settings of the trigger, which determines when Spark plans the next batch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from penstock.spec.quantity import Duration
from penstock.spec.settings import OneKey


class Trigger(OneKey):
    """When the next batch starts. Exactly one of the keys."""

    processing_time: Duration | None = Field(
        default=None, description="A batch at this interval, such as `10s`; `0` starts the next one as soon as the last is done."
    )
    available_now: Literal[True] | None = Field(
        default=None,
        description="`true`: deliver everything that is there now, in as many batches as the rate limits ask for, then stop.",
    )
    once: Literal[True] | None = Field(
        default=None, description="`true`: treated as `available_now`, which Spark replaced it with."
    )
    continuous: Duration | None = Field(
        default=None, description="Spark's continuous processing with this commit interval. Delivers at least once only."
    )
    real_time: Duration | None = Field(
        default=None, description="Spark's real-time mode with batches of this length. Delivers at least once only."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            processing_time: int | str | None = None,
            available_now: Literal[True] | None = None,
            once: Literal[True] | None = None,
            continuous: int | str | None = None,
            real_time: int | str | None = None,
        ) -> None: ...

    @property
    def batches_have_identity(self) -> bool:
        """Whether Spark logs a batch's offsets before it runs, so that a repeated batch can be recognised."""
        return self.continuous is None and self.real_time is None

    def spark_arguments(self) -> Mapping[str, str | bool]:
        """Return the keyword argument for `DataStreamWriter.trigger`."""
        if self.processing_time is not None:
            return {"processingTime": f"{self.processing_time} milliseconds"}
        if self.continuous is not None:
            return {"continuous": f"{self.continuous} milliseconds"}
        if self.real_time is not None:
            return {"realTime": f"{self.real_time} milliseconds"}
        return {"availableNow": True}
