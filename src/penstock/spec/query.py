"""Settings of the query between the sources and the sinks: its transform, and its trigger, which begins each batch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from penstock.spec.complaint import complaint_error
from penstock.spec.name import PythonName
from penstock.spec.quantity import Duration
from penstock.spec.settings import OneKey


class Transform(OneKey):
    """One query over the sources, as SQL or as a Python function."""

    sql: str | None = Field(default=None, min_length=1, description="A Spark SQL query; every source is a view of its name.")
    python: PythonName | None = Field(
        default=None,
        description="`package.module:function`, called once as `function(spark, sources: dict[str, DataFrame]) -> DataFrame`.",
    )

    def _not_one(self, given: Sequence[str]) -> PydanticCustomError:
        has = "has both sql and python" if given else "has neither sql nor python"
        return complaint_error(has, remedy="Keep exactly one of them, or leave transform out to pass the rows on as they are.")


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
