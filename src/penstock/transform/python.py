"""`transform.python`: a function `package.module:function(spark, sources) -> DataFrame`."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import Failed, Usage
from penstock.model import SourceName
from penstock.sparkerror import read_spark_error

_REMEDY = "The function must be def name(spark, sources: dict[str, DataFrame]) -> DataFrame."


def run_python(
    spark: SparkSession, sources: Mapping[SourceName, DataFrame], reference: str, *, modules: Path | None
) -> DataFrame:
    """What the function at `reference` returns. Raises Usage (not found, not a function, no DataFrame) and Failed (it raised)."""
    function = load_function(reference, modules=modules)
    try:
        result = function(spark, dict(sources))
    except Exception as error:
        raise Failed(
            f"transform.python {reference} raised {_told(error)}",
            remedy="Correct the function; --debug shows the whole traceback.",
        ) from error
    if not isinstance(result, DataFrame):
        raise Usage(f"transform.python {reference} returned {_kind(result)}, expected a DataFrame.", remedy=_REMEDY)
    return result


def load_function(reference: str, *, modules: Path | None) -> Callable[..., object]:
    """The function that `reference` names. Raises Usage, Failed."""
    module_name, _, name = reference.partition(":")
    module = _load_module(module_name, modules)
    function = getattr(module, name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")]
        raise Usage(
            f"transform.python: module {module_name} ({module.__file__}) has no {name}.",
            remedy=f"It has {', '.join(functions)}." if functions else "It has no functions.",
        )
    _require_callable(reference, function)
    return function  # type: ignore[no-any-return]


def _require_callable(reference: str, function: object) -> None:
    if not callable(function):
        raise Usage(f"transform.python {reference} is {_kind(function)}, expected a function.", remedy=_REMEDY)
    try:
        inspect.signature(function).bind(None, {})
    except TypeError as error:
        raise Usage(f"transform.python {reference} cannot be called with (spark, sources): {error}.", remedy=_REMEDY) from error
    except ValueError:
        return  # a built-in without a signature: calling it will tell


def _load_module(name: str, modules: Path | None) -> ModuleType:
    if modules is not None and str(modules) not in sys.path:
        sys.path.insert(0, str(modules))
    before = set(sys.modules)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            beside = f"Put {name.replace('.', '/')}.py into {modules}" if modules is not None else "Put it on PYTHONPATH"
            raise Usage(
                f"transform.python: there is no module {name}.",
                remedy=f"{beside}, install the package, or correct the name.",
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error
    if modules is not None:
        _travel_by_value(set(sys.modules) - before | {name}, modules)
    return module


def _travel_by_value(names: set[str], modules: Path) -> None:
    """Let functions of modules beside the pipeline file reach executors, which do not have that directory on their path."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).resolve().is_relative_to(modules.resolve()) and not _is_installed(file):
            cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _is_installed(file: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _broken(name: str, error: Exception) -> Failed:
    return Failed(
        f"transform.python: importing {name} raised {_told(error)}",
        remedy="Correct the module; --debug shows the whole traceback.",
    )


def _told(error: Exception) -> str:
    """The exception in one sentence with the innermost line of the user's own code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} at {error.filename} line {error.lineno}: {error.msg}."
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    place = f" at {own[-1].filename} line {own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{place}: {read_spark_error(str(error)).sentence}"


def _is_users(file: str) -> bool:
    return not (file.startswith("<") or _is_installed(file) or Path(__file__).parent in Path(file).parents)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
