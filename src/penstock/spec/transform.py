"""Settings of the transform, the query between the sources and the sinks."""

from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from penstock.spec.complaint import complaint_error
from penstock.spec.name import PythonName
from penstock.spec.settings import ONE_KEY, Settings


class Transform(Settings):
    """One query over the sources, as SQL or as a Python function."""

    model_config: ClassVar[ConfigDict] = ONE_KEY

    sql: str | None = Field(default=None, min_length=1, description="A Spark SQL query; every source is a view of its name.")
    python: PythonName | None = Field(
        default=None,
        description="`package.module:function`, called once as `function(spark, sources: dict[str, DataFrame]) -> DataFrame`.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.sql is None) == (self.python is None):
            has = "has both sql and python" if self.sql else "has neither sql nor python"
            raise complaint_error(has, remedy="Keep exactly one of them, or leave transform out to pass the rows on as they are.")
        return self
