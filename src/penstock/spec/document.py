"""Parses a YAML file into plain values, with the line of every key."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock.errors import Usage
from penstock.spec.complaint import KeyPath, dotted

_BRACES = "Inside { } and [ ] a reference needs quotes: {url: '${VAR}'}."
_FLATTEN = "Write fewer levels of lists and mappings inside each other."
_NAMED = re.compile(r"(alias|anchor|tag handle) (?:'.*'|\".*\")", re.DOTALL)
_MERGE = "tag:yaml.org,2002:merge"
_TYPED = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))
"""Tags of scalars with a type. Every other scalar stays text, dates too."""
_MOST_VALUES = 50_000
"""Aliases of aliases multiply: a file of ten lines can expand to more values than memory holds."""


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a pipeline file: mappings with text keys, lists and scalars. `lines` counts from 1."""

    file: str
    content: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """Return the line of the value at `path`, or of the nearest mapping that should hold it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, *, file: str) -> Document:
    """Parse `text`; `file` is its name in errors. Raises Usage."""
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        if not isinstance(root, MappingNode):
            found = "nothing" if root is None else "a list" if isinstance(root, SequenceNode) else "a single text"
            raise Usage(
                f"{file}:1: a pipeline file should be a mapping of keys, found {found}.",
                remedy="Start from `penstock init`.",
            )
        reading = _Reading(file, yaml.constructor)
        return Document(file, reading.value(root, ()), reading.lines)
    except RecursionError:
        raise Usage(f"{file}: the values are nested too deeply to be read.", remedy=_FLATTEN) from None
    except MarkedYAMLError as error:
        raise _not_yaml(file, text, error) from None
    except YAMLError as error:
        raise Usage(f"{file}: not valid YAML: {' '.join(str(error).split())}.", remedy="Correct the file.") from None


def scalar(text: str) -> Any:
    """Return the value that `text` has in YAML: `5` is a number, `[a]` a list. Raises Usage, which shows nothing of `text`."""
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        return None if root is None else _Reading("the value", yaml.constructor).value(root, ())
    except RecursionError:
        raise Usage("The value is nested too deeply to be read.", remedy=_FLATTEN) from None
    except YAMLError as error:
        problem = _unnamed(getattr(error, "problem", None) or "it cannot be read")
        raise Usage(f"The value is not valid YAML: {problem}.", remedy="Put it in quotes if it is meant as text.") from None


def _unnamed(problem: str) -> str:
    """Return YAML's message without the name that it quotes: a password that begins with `*` or `!` is read as a name."""
    return _NAMED.sub(r"\1", problem)


def _not_yaml(file: str, text: str, error: MarkedYAMLError) -> Usage:
    mark = error.problem_mark or error.context_mark
    where = f"{file}:{mark.line + 1}" if mark else file
    what = _unnamed(" ".join(part for part in (error.context, error.problem) if part))
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    remedy = _BRACES if "${" in line else "Check the indentation, quotes and colons of this line and the one before."
    return Usage(f"{where}: not valid YAML: {what}.", remedy=remedy)


@dataclass(slots=True)
class _Reading:
    file: str
    constructor: SafeConstructor
    lines: dict[KeyPath, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    values: int = 0

    def value(self, node: Node, path: KeyPath) -> Any:
        self._count(node)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if id(node) in self.open:
            raise Usage(f"{self.file}:{self.lines[path]}: {dotted(path)} contains itself.", remedy="Remove the YAML alias.")
        self.open.add(id(node))
        if isinstance(node, MappingNode):
            content: Any = dict(self._mapping(node, path))
        else:
            content = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        self.open.discard(id(node))
        return content

    def _scalar(self, node: ScalarNode) -> Any:
        if node.tag in _TYPED:
            with suppress(ValueError, LookupError):  # `!!int x` and `+_` stay texts
                return self.constructor.construct_document(node)
        return str(node.value)

    def _count(self, node: Node) -> None:
        self.values += 1
        if self.values > _MOST_VALUES:
            raise Usage(
                f"{self.file}:{node.start_mark.line + 1}: the file stands for more than {_MOST_VALUES:,} values, counted "
                "with what its aliases repeat.",
                remedy="Write the values out instead of aliases (`*name`) of aliases.",
            )

    def _mapping(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for key, item in _merged(node):
            yield from ((name, self.value(inner, (*path, name))) for name, inner in self._inherited(key, item))
        for key, item in node.value:
            if key.tag == _MERGE:
                continue
            name = self._key(key, path)
            line = key.start_mark.line + 1
            if name in first:
                raise Usage(
                    f"{self.file}:{line}: {dotted((*path, name))} is given twice, first in line {first[name]}.",
                    remedy="Keep one of the two.",
                )
            first[name] = self.lines[(*path, name)] = line
            yield name, self.value(item, (*path, name))

    def _inherited(self, key: Node, item: Node) -> Iterator[tuple[str, Node]]:
        """Yield the pairs that `<<: *alias` merges; of several mappings the first wins, so it comes last."""
        self._count(item)
        if isinstance(item, SequenceNode):
            for each in reversed(item.value):
                yield from self._inherited(key, each)
        elif isinstance(item, MappingNode):
            for inner_key, inner in _merged(item):
                yield from self._inherited(inner_key, inner)
            yield from ((str(name.value), inner) for name, inner in item.value if name.tag != _MERGE)

    def _key(self, key: Node, path: KeyPath) -> str:
        if not isinstance(key, ScalarNode):
            line = key.start_mark.line + 1
            raise Usage(
                f"{self.file}:{line}: a key of {dotted(path) or 'the file'} is not a text.",
                remedy="Put the value that starts here in quotes.",
            )
        return str(key.value)


def _merged(node: MappingNode) -> Iterator[tuple[Node, Node]]:
    return ((key, item) for key, item in node.value if key.tag == _MERGE)
