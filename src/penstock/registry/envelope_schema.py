"""Avro schemas of topics of change events: what their records are, and what the columns of their rows stand for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import Usage
from penstock.registry.avro import WIDER, WrittenReader, parsed
from penstock.registry.change_event import ENVELOPE_FIELDS
from penstock.registry.semantic_type import DECIMAL, UNKNOWN, Semantics, SemanticType
from penstock.registry.wire import Registered, Undecodable

_HEARTBEAT = "io.debezium.connector.common.Heartbeat"
_NAMES_OF_OTHERS = {"TransactionMetadataValue": "boundaries of transactions", "SchemaChangeValue": "changes of schemas"}
_KINDS: Mapping[str, str] = {
    **{name: name for name in ("boolean", "float", "double", "bytes", "string", "array", "map")},
    "int": "int32",
    "long": "int64",
    "fixed": "bytes",
    "enum": "string",
    "record": "struct",
    "error": "struct",
}
"""Connect's types by Avro's."""
_NOTHING: Final = object()
"""No default: a row without the column cannot be read."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of rows. `semantics`: what their values stand for. `aliases`: older names of a column.

    `defaults`: values of columns that rows lack. `renamed`: by which older name rows have a column.
    """

    semantics: Semantics
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def read_from(self, written: "Columns") -> "Columns":
        """Return how these columns are read from rows with the columns `written`, by Avro's rules for names and defaults."""
        names = {name: self._name_in(written, name) for name in self.semantics}
        found = {name: other for name, other in names.items() if other is not None}
        return Columns(
            {name: written.semantics[found[name]] if name in found else kind for name, kind in self.semantics.items()},
            renamed={name: other for name, other in found.items() if other != name},
            defaults={name: self.defaults[name] for name in names if name not in found and self.defaults[name] is not None},
        )

    def _name_in(self, written: "Columns", name: str) -> str | None:
        return next((one for one in (name, *self.aliases.get(name, ())) if one in written.semantics), None)

    def completed(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row with the columns that it has by another name, and with defaults of those that it lacks."""
        lacking = next((name for name, default in self.defaults.items() if default is _NOTHING), None)
        if lacking is not None:
            raise Undecodable(f"it has no column {lacking}, which has no default in the schema that it is read by")
        return {**row, **{name: row.get(other) for name, other in self.renamed.items()}, **self.defaults}


class EnvelopeSchema:
    """An Avro schema of a topic of change events. The constructor raises Usage for a schema that is none of Avro's."""

    def __init__(self, schema: Registered) -> None:
        self._named: dict[str, Any] = {}
        self._root: Any = parsed(schema, self._named)
        root = self._root if isinstance(self._root, dict) else {}
        self._name = str(root.get("connect.name") or root.get("name"))
        self._fields = {each["name"]: each["type"] for each in root.get("fields", ())}
        self.columns = self._columns()
        self.read = WrittenReader(schema).read

    @property
    def is_heartbeat(self) -> bool:
        return self._name == _HEARTBEAT

    @property
    def others(self) -> str | None:
        """What its records tell instead of changes of rows, None for an envelope."""
        return _NAMES_OF_OTHERS.get(self._name.rpartition(".")[2])

    def require_envelope(self, subject: str) -> None:
        """Raise Usage unless it is an envelope whose rows have columns that Spark has types for."""
        if not self._fields.keys() >= ENVELOPE_FIELDS or self._row() is None:
            raise Usage(
                f"The schema of subject {subject!r} is {self._name}, and no envelope of Debezium: expected fields before, after, "
                f"source and op, found {', '.join(self._fields) or 'none'}.",
                remedy="Name the `subject` of the table's topic, or take `envelope` out.",
            )
        shape = next((name for name, semantic in self.columns.semantics.items() if semantic.is_geometry), None)
        if shape is not None:
            raise Usage(
                f"Field {shape!r} of subject {subject!r} has no Spark type: it is a {self.columns.semantics[shape].name}.",
                remedy="Have the connector leave the column out by column.exclude.list.",
            )

    def _columns(self) -> Columns:
        fields = (self._row() or {"fields": ()})["fields"]
        semantics = {each["name"]: self._semantic(each["type"], ()) for each in fields}
        return Columns(
            semantics,
            aliases={each["name"]: tuple(each.get("aliases", ())) for each in fields},
            defaults={each["name"]: _default(semantics[each["name"]], each.get("default", _NOTHING)) for each in fields},
        )

    def _row(self) -> Any:
        """Return the record that `after` is, None if there is none."""
        found = self._one(self._fields.get("after"))
        return found if isinstance(found, dict) and "fields" in found else None

    def _one(self, schema: Any) -> Any:
        """Return the type beside null in a union, the wider one of two numbers, and the type that a name stands for."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            wider = next((wide[1] for wide in WIDER if sorted(map(str, others)) == sorted(wide)), None)
            return self._one(others[0]) if len(others) == 1 else wider
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _semantic(self, schema: Any, above: tuple[str, ...]) -> SemanticType:
        """Return what values of `schema` stand for. `above`: the records around it, whose own fields are not told again."""
        found = self._one(schema)
        if isinstance(found, dict) and isinstance(found["type"], dict | list):
            return self._semantic(found["type"], above)
        if not isinstance(found, dict):
            kind = _KINDS.get(str(found), "union")
            return SemanticType(kind, kind=kind)
        if found.get("name") in above:
            return UNKNOWN
        kind, inside = _KINDS.get(found["type"], "union"), (*above, *filter(None, [found.get("name")]))
        inner = found.get("items") or found.get("values")
        fields = tuple((each["name"], self._semantic(each["type"], inside)) for each in found.get("fields", ()))
        element = None if inner is None else self._semantic(inner, inside)
        name = _name_of(found) or kind
        return SemanticType(name, _scale(found) if name == DECIMAL else None, element, kind, fields)


def _name_of(schema: Mapping[str, Any]) -> str | None:
    logical = schema.get("logicalType")
    names = (schema.get("connect.name"), DECIMAL if logical == "decimal" else logical, schema.get("name"))
    return next((name for name in names if isinstance(name, str)), None)


def _scale(schema: Mapping[str, Any]) -> int:
    """Return a decimal's scale, which is 0 where nothing is said, for Avro as for Connect's converter."""
    parameters = schema.get("connect.parameters")
    given = schema.get("scale", parameters.get("scale") if isinstance(parameters, dict) else None)
    return int(given) if isinstance(given, int | str) else 0


def _default(semantic: SemanticType, value: Any) -> Any:
    """Return a default as a value that was written: bytes are text in a schema."""
    if semantic.kind == "bytes" and isinstance(value, str):
        return value.encode("iso-8859-1")
    if semantic.element is not None and isinstance(value, list):
        return [_default(semantic.element, one) for one in value]
    if isinstance(value, dict):
        inner = dict(semantic.fields)
        return {key: _default(semantic.element or inner.get(key, UNKNOWN), one) for key, one in value.items()}
    return value
