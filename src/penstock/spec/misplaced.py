"""Says of a key that is at the wrong place in a pipeline file where it belongs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from penstock.spec.complaint import Complaint, KeyPath, dotted
from penstock.spec.file_options import options_of
from penstock.spec.kafka_options import OPTIONS
from penstock.spec.pipeline import PipelineSettings, Spark, Transform, Trigger
from penstock.spec.settings import UNKNOWN, Settings
from penstock.spec.sink import Sink
from penstock.spec.source import Source

_OF_THE_TOP: Final[Mapping[str, type[Settings]]] = {"trigger": Trigger, "transform": Transform, "spark": Spark}
_SPARK_SETTING: Final = "spark."
_MANY: Final = 3


def with_place(complaint: Complaint, content: Mapping[str, Any]) -> Complaint:
    """Return `complaint`; if it is about a key that is unknown here and known elsewhere in the file, with that place as remedy.

    `content`: of the file. A key of other types of sinks only is named as that, unless the key is nearly one of this sink.
    """
    if complaint.message != UNKNOWN or not complaint.at:
        return complaint
    key = str(complaint.at[-1])
    if key == "type" and complaint.at[0] == "sources":
        return replace(complaint, remedy="A source has the key format in its place.")
    types = [kind for kind, keys in _sink_keys().items() if key in keys]
    is_of_sinks = bool(types) and complaint.at[0] == "sinks"  # of another type: it was hardly meant for a source
    found = [place for place in _places(key, complaint.at, content) if not (is_of_sinks and place[:1] == ("sources",))]
    if found:
        return replace(complaint, remedy=f"It belongs {' or '.join(map(_where, found[:_MANY]))}.")
    if types and "Did you mean" not in complaint.remedy:
        return replace(complaint, remedy=f"It is a key of sinks of type {', '.join(types)}. {complaint.remedy}")
    return complaint


def _places(key: str, at: KeyPath, content: Mapping[str, Any]) -> Iterator[KeyPath]:
    """Yield what the file can have the key below, apart from where it is. The sources and sinks of the file are named."""
    if len(at) > 1 and key in PipelineSettings.valid_keys():
        yield ()
    for above, settings in _OF_THE_TOP.items():
        if key in settings.valid_keys():
            yield (above,)
    if key.startswith(_SPARK_SETTING):
        yield ("spark", "conf")
    for name, source in _named(content, "sources", at):
        if key in Source.valid_keys() and ("sources", name, key) != at:
            yield ("sources", name)
        elif at[0] != "sinks" and key in _options_of(source):
            yield ("sources", name, "options")
    for name, sink in _named(content, "sinks", at):
        if key in _sink_keys().get(str(sink.get("type")), ()) and ("sinks", name, key) != at:
            yield ("sinks", name)


def _where(place: KeyPath) -> str:
    return f"below {dotted(place)}" if place else "at the top of the file"


def _named(content: Mapping[str, Any], part: str, at: KeyPath) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return the sources or sinks of the file: if the key is somewhere in one of them, only that."""
    found = content.get(part)
    if not isinstance(found, Mapping):
        return []
    named = [(str(name), settings) for name, settings in found.items() if isinstance(settings, Mapping)]
    return [(name, settings) for name, settings in named if name == at[1]] if len(at) > 1 and at[0] == part else named


def _options_of(source: Mapping[str, Any]) -> Sequence[str]:
    kind = str(source.get("format", "")).lower()
    return OPTIONS if kind == "kafka" else options_of(kind)


def _sink_keys() -> Mapping[str, Sequence[str]]:
    """Return the keys of each type of sink."""
    members = [get_args(member) for member in get_args(get_args(Sink)[0])]
    return {tag.tag: settings.valid_keys() for settings, tag in members}
