"""Plants a mutant in the process that runs, whose modules are imported already.

A function that the mutant changes gets its new code where it is, so that whoever imported it has it too. A module that is not
imported yet is imported changed. A mutant that changes more than the inside of functions of an imported module is refused.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PRODUCT = "src/penstock/"


class NotInPlaceError(Exception):
    """The mutant needs a process that imports the product anew."""


def plant(file: str, before: str, after: str) -> None:
    """Change the module of `file`, a path from the root of the repository, whose text is `before`. Raises NotInPlaceError."""
    name = _module_of(file)
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Changed(name, after))
        return
    found = dict(_functions_of(module))
    for old, new in _changed(compile(before, file, "exec"), compile(after, file, "exec")):
        function = found.get((old.co_name, old.co_firstlineno))
        if function is None or function.__code__.co_freevars != new.co_freevars:
            raise NotInPlaceError(f"{old.co_name} of {name} is not found in the imported module")
        function.__code__ = new


def _module_of(file: str) -> str:
    if not file.startswith(_PRODUCT) or not file.endswith(".py"):
        raise NotInPlaceError(f"{file} is no module of the product")
    return file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions in the body of a module, or of a class, that differ. Raises NotInPlaceError if more does."""
    olds, news = _codes_in(old), _codes_in(new)
    if _body_of(old) != _body_of(new) or [each.co_name for each in olds] != [each.co_name for each in news]:
        raise NotInPlaceError(f"the body of {old.co_name} itself is changed")
    for one, other in zip(olds, news, strict=True):
        if not one.co_flags & CO_OPTIMIZED:  # the body of a class
            yield from _changed(one, other)
        elif one.co_code != other.co_code or one.co_consts != other.co_consts or one.co_names != other.co_names:
            yield one, other


def _codes_in(code: CodeType) -> Sequence[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _body_of(code: CodeType) -> tuple[object, ...]:
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, repr(constants), code.co_names


def _functions_of(module: ModuleType) -> Iterator[tuple[tuple[str, int], FunctionType]]:
    """Those that the module defines, in its classes and below its decorators too, by their names and first lines."""
    waiting, seen = list(vars(module).values()), set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType) and one.__module__ == module.__name__:
            yield (one.__code__.co_name, one.__code__.co_firstlineno), one
        elif isinstance(one, type) and one.__module__ == module.__name__:
            waiting.extend(vars(one).values())
        waiting.extend(_below(one))


def _below(decorated: Any) -> Iterator[Any]:
    """The functions that a method, a property or a decorator's function stands before."""
    if isinstance(decorated, property):
        yield from (decorated.fget, decorated.fset, decorated.fdel)
    elif isinstance(decorated, cached_property):
        yield decorated.func
    elif isinstance(decorated, (staticmethod, classmethod)):
        yield decorated.__func__
    elif isinstance(decorated, Callable) and not isinstance(decorated, type):  # type: ignore[arg-type]
        yield getattr(decorated, "__wrapped__", None)


class _Changed(MetaPathFinder):
    """Finds one module, with another text than its file has."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _ChangedLoader(fullname, spec.origin, self._text)
        return spec


class _ChangedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """Without the compiled code of the file, and without leaving any."""
        return compile(self._text, self.get_filename(fullname), "exec", dont_inherit=True)
