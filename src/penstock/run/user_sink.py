"""Construction of sinks that users write, `python: package.module:Class` or an object, with an error for every mistake."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.model import Finding, PipelineName, SinkName
from penstock.errors import Failed, PenstockError, Usage
from penstock.protocols import HasStaging, Sink, TaskCheck
from penstock.spec.sink import PythonSink
from penstock.support.user_code import load, loaded_beside, raised

if TYPE_CHECKING:
    from penstock.sink.own import OwnSink
    from penstock.sink.spool import SpoolRoot

_REMEDY = (
    "Derive the class from penstock.OwnSink (docs/howto/own_sink.md), or give it every member of penstock.protocols.Sink, and of "
    "HasStaging there none or every one."
)


def user_written(
    name: SinkName, settings: PythonSink, *, pipeline: PipelineName, spool: "SpoolRoot", modules: Path | None
) -> Sink:
    """Return the sink. Raises Usage if its class is not found, is no sink, or takes other options; Failed for what it raised."""
    key, reference = f"sinks.{name}.python", settings.reference
    if not isinstance(settings.python, str | type):
        return _own_sink(key, settings).bound(name=name, pipeline=pipeline, spool=spool)
    made: object = settings.python
    if isinstance(settings.python, str):
        made = load(reference, key=key, modules=modules, is_kind=_is_class, kinds="classes")
    if not callable(made):
        raise Usage(f"{key}: {reference} is a value of type {type(made).__name__}, expected a class.", remedy=_REMEDY)
    _require_members(key, reference, sorted(getattr(made, "__abstractmethods__", ())))
    given = {"name": name, "pipeline": pipeline, "spool": spool}
    _require_taken(key, made, given, settings.options)
    try:
        sink: Sink = made(**given, **settings.options)
    except PenstockError:
        raise
    except Exception as error:
        raise Failed(f"{key}: {reference} raised {raised(error)}", remedy="Correct the class or its options.") from error
    _require_members(key, reference, [member for member in _members(Sink) if not hasattr(sink, member)])
    _require_all_or_none(key, reference, sink)
    return sink


def _require_all_or_none(key: str, reference: str, sink: Sink) -> None:
    """Raise Usage for a sink that has some members of HasStaging: what it lacks would be passed over silently."""
    has = {member: getattr(type(sink), member, getattr(sink, member, None)) for member in _members(HasStaging)}
    missing = [member for member, found in has.items() if found in {None, getattr(HasStaging, member)}]
    if 0 < len(missing) < len(has):
        there = ", ".join(member for member in has if member not in missing)
        raise Usage(
            f"{key}: {reference} has {there} of HasStaging, but lacks {', '.join(missing)}.",
            remedy="Define all members of penstock.protocols.HasStaging, or none.",
        )


def _own_sink(key: str, settings: PythonSink) -> "OwnSink[Any]":
    """Return the object that code gave, if Penstock can give it the rest. Raises Usage."""
    from penstock.sink.own import OwnSink

    if not isinstance(settings.python, OwnSink):
        raise Usage(
            f"{key}: an object of {settings.reference} was given, which is not derived from penstock.OwnSink.",
            remedy="Give the class and its options: penstock.PythonSink(python=Class, option=value).",
        )
    if settings.options:
        raise Usage(
            f"{key}: the option {next(iter(settings.options))!r} is given beside an object of {settings.reference}.",
            remedy="Give the options to the class where the object is made.",
        )
    return settings.python


def import_checks(sinks: Mapping[SinkName, Sink], settings: Mapping[str, object]) -> Iterator[TaskCheck]:
    """Yield checks whether tasks can import the user's modules that they need.

    Modules beside the pipeline file, and what a script or a notebook defines itself, travel with the query.
    """
    for name, sink in sinks.items():
        found = settings[name]
        if isinstance(found, PythonSink) and _reaches_tasks(sink):
            module = found.reference.partition(":")[0]
            if module != "__main__" and module not in loaded_beside():
                yield ImportCheck(sink=name, module=module)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCheck:
    """A `TaskCheck` that imports a user's module."""

    sink: SinkName
    module: str

    def findings(self) -> Sequence[Finding]:
        subject = f"sink {self.sink}"
        try:
            importlib.import_module(self.module)
        except Exception as error:  # noqa: BLE001 - whatever the module raises is the finding
            message = f"importing {self.module} raised {raised(error)} Install it on every executor."
            return [Finding(subject=subject, ok=False, message=message)]
        return [Finding(subject=subject, ok=True, message=f"{self.module} can be imported")]


def _is_class(value: object) -> bool:
    return inspect.isclass(value) and not inspect.isabstract(value)


def _reaches_tasks(sink: Sink) -> bool:
    from penstock.sink.own import OwnSink

    return not isinstance(sink, OwnSink) or sink.row_check() is not None


def _require_members(key: str, reference: str, missing: Sequence[str]) -> None:
    if missing:
        raise Usage(f"{key}: {reference} is no sink, since it lacks {', '.join(missing)}.", remedy=_REMEDY)


def _require_taken(key: str, made: Callable[..., Any], given: Mapping[str, object], options: Mapping[str, object]) -> None:
    signature = _signature(made)
    clashing = sorted(given.keys() & options.keys())
    if clashing:
        raise Usage(f"{key}: {clashing[0]!r} is no option, since Penstock gives it.", remedy="Take it out, or rename it.")
    if signature is None:
        return
    taken = [name for name, parameter in signature.parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    own = [name for name in taken if name not in given]
    listed = f"Its options are: {', '.join(own)}." if own else "It has no options."
    needed = [name for name in own if signature.parameters[name].default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in options and signature.parameters[name].kind is not _ANY]
    if missing:
        raise Usage(f"{key}: the option {missing[0]!r} is missing.", remedy=listed)
    wide = len(taken) < len(signature.parameters)
    unknown = [name for name in options if name not in taken]
    if unknown and (not wide or _hands_on(made)):
        raise Usage(f"{key}: {unknown[0]!r} is no option of it.", remedy=listed)
    refused = [name for name in given if name not in taken]
    if refused and not wide:
        raise Usage(
            f"{key}: it is given {', '.join(given)}, but its __init__ does not take {refused[0]!r}.",
            remedy="Let it take **given, and hand that on to super().__init__().",
        )


_ANY = inspect.Parameter.VAR_POSITIONAL


def _signature(made: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(made)
    except (ValueError, TypeError):  # the call shows whether it fits
        return None


def _hands_on(made: Callable[..., Any]) -> bool:
    """Return whether the `**given` of its `__init__` goes to OwnSink's, which takes no options."""
    from penstock.sink.own import OwnSink

    return inspect.isclass(made) and issubclass(made, OwnSink)


def _members(protocol: type) -> Sequence[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]
