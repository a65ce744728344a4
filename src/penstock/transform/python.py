"""The key `transform.python`: a function `package.module:function(spark, sources) -> DataFrame`."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.errors import Failed, Usage
from penstock.support.user_code import load, loaded_beside, raised

_KEY = "transform.python"
_REMEDY = "The function must be def name(spark, sources: dict[str, DataFrame]) -> DataFrame."


def run_python(
    spark: SparkSession, sources: Mapping[SourceName, DataFrame], reference: str, *, modules: Path | None
) -> DataFrame:
    """Call the function at `reference`. Raises Usage (not found, not a function, no DataFrame) and Failed (it raised)."""
    function = load_function(reference, modules=modules)
    try:
        result = function(spark, dict(sources))
    except Exception as error:
        raise Failed(
            f"{_KEY} {reference} raised {raised(error)}",
            remedy="Correct the function; --debug shows the whole traceback.",
        ) from error
    if not isinstance(result, DataFrame):
        raise Usage(f"{_KEY} {reference} returned {_kind(result)}, expected a DataFrame.", remedy=_REMEDY)
    return result


def load_function(reference: str, *, modules: Path | None) -> Callable[..., object]:
    """Return the function that `reference` names. Raises Usage, Failed."""
    function = load(reference, key=_KEY, modules=modules, is_kind=inspect.isfunction, kinds="functions")
    travel_by_value()
    if not callable(function):
        raise Usage(f"{_KEY} {reference} is {_kind(function)}, expected a function.", remedy=_REMEDY)
    _require_callable(reference, function)
    return function


def travel_by_value() -> None:
    """Pickle modules beside the pipeline file by value, because executors do not have that directory on their path."""
    for name in loaded_beside():
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _require_callable(reference: str, function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(None, {})
    except TypeError as error:
        raise Usage(f"{_KEY} {reference} cannot be called with (spark, sources): {error}.", remedy=_REMEDY) from error
    except ValueError:
        return  # a built-in without a signature: calling it will tell


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
