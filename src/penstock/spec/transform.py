"""Settings of the transform, the query between the sources and the sinks."""

from collections.abc import Sequence

from pydantic import Field
from pydantic_core import PydanticCustomError

from penstock.spec.complaint import complaint_error
from penstock.spec.name import PythonName
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
