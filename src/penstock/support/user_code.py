"""Loading of user code named as `package.module:name`, and one-sentence reports of what it raised."""

import importlib
import sys
import traceback
from collections.abc import Callable, Set
from pathlib import Path
from types import ModuleType

from penstock.errors import Failed, Usage
from penstock.spark.error import read_spark_error
from penstock.support.secret import scrub

_beside: set[str] = set()


def load(reference: str, *, key: str, modules: Path | None, is_kind: Callable[[object], bool], kinds: str) -> object:
    """Return the object that `reference` names. Raises Usage, Failed.

    `modules` is a directory searched before the search path. `key` names the entry of the pipeline file in errors. If the module
    lacks the name, the error lists the objects for which `is_kind` is true, or says that it has no `kinds`.
    """
    module_name, _, name = reference.partition(":")
    module = _load_module(module_name, key, modules)
    found = getattr(module, name, None)
    if found is None:
        there = [other for other, value in vars(module).items() if is_kind(value) and not other.startswith("_")]
        raise Usage(
            f"{key}: module {module_name} ({module.__file__}) has no {name}.",
            remedy=f"It has {', '.join(there)}." if there else f"It has no {kinds}.",
        )
    return found


def loaded_beside() -> Set[str]:
    """Return the loaded modules from the directory of a pipeline file, which is not on the executors' search path."""
    return _beside & sys.modules.keys()


def raised(error: BaseException) -> str:
    """Return one sentence about the exception, with the innermost line of the user's own code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} at {error.filename} line {error.lineno}: {error.msg}."
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    place = f" at {own[-1].filename} line {own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{place}: {read_spark_error(scrub(str(error))).sentence}"


def _load_module(name: str, key: str, modules: Path | None) -> ModuleType:
    if modules is not None and str(modules) not in sys.path:
        sys.path.insert(0, str(modules))
    before = set(sys.modules)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            beside = f"Put {name.replace('.', '/')}.py into {modules}" if modules is not None else "Put it on PYTHONPATH"
            raise Usage(
                f"{key}: there is no module {name}.", remedy=f"{beside}, install the package, or correct the name."
            ) from error
        raise _broken(name, key, error) from error
    except Exception as error:
        raise _broken(name, key, error) from error
    if modules is not None:
        for new in set(sys.modules) - before | {name}:
            file = getattr(sys.modules[new], "__file__", None)
            if file is not None and Path(file).resolve().is_relative_to(modules.resolve()) and not _is_installed(file):
                _beside.add(new)
    return module


def _is_installed(file: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _is_users(file: str) -> bool:
    others = {Path(__file__).parent, Path(traceback.__file__).parent}
    return not (file.startswith("<") or _is_installed(file) or others & set(Path(file).parents))


def _broken(name: str, key: str, error: Exception) -> Failed:
    return Failed(
        f"{key}: importing {name} raised {raised(error)}",
        remedy="Correct the module; --debug shows the whole traceback.",
    )
