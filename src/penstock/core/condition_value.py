"""Evaluation of an `UpdateCondition` on the columns of rows of a table and of a batch, exactly and in one way for every table."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.update_condition import Column, Node, Operand, UpdateCondition, not_understood
from penstock.errors import Usage

_COMPARED: Final[Mapping[str, Callable[..., Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def bound_condition(condition: UpdateCondition, rows: "pa.Schema") -> UpdateCondition:
    """Return the condition with its columns named as `rows` names them. Raise Usage unless all can be compared there."""
    bound = UpdateCondition(condition.text, _renamed(condition.root, rows))
    nothing = rows.empty_table()
    try:
        condition_holds(bound, nothing, nothing)
    except (pa.ArrowException, OverflowError) as cause:
        reason = str(cause).partition("\n")[0]
        raise not_understood(
            condition.text, f"whose operands cannot be compared: {reason}", "Cast a column in the transform."
        ) from cause
    return bound


def condition_holds(condition: UpdateCondition, old: "pa.Table", new: "pa.Table") -> "pa.BooleanArray":
    """Return for each pair of rows whether the condition, which is bound, is true; false where it is unknown."""
    found = _value(condition.root, {"old": old, "new": new})
    if isinstance(found, pa.Scalar):
        found = pa.array([found.as_py()] * len(old), pa.bool_())
    flat = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return pc.fill_null(flat, fill_value=False)


def _renamed(node: Node, rows: "pa.Schema") -> Node:
    parts = (_renamed(part, rows) if isinstance(part, Node) else _found(node, part, rows) for part in node.parts)
    return Node(node.operation, tuple(parts))


def _found(node: Node, part: Operand, rows: "pa.Schema") -> Operand:
    if not isinstance(part, Column):
        return part
    names = [name for name in rows.names if name == part.name] or [n for n in rows.names if n.lower() == part.name.lower()]
    if len(names) != 1:
        raise Usage(
            f"update_when names column {str(part)!r}, but the rows have {', '.join(rows.names)}.",
            remedy="Correct `update_when:` of the sink.",
        )
    kind = rows.field(names[0]).type
    if node.operation != "null" and (pa.types.is_floating(kind) or pa.types.is_nested(kind)):
        raise Usage(
            f"update_when compares column {str(part)!r}, whose type {kind} does not compare exactly.",
            remedy="Cast it in the transform to DECIMAL, or compare another column.",
        )
    return Column(part.side, names[0])


def _value(part: "Node | Operand", sides: Mapping[str, "pa.Table"]) -> Any:
    if isinstance(part, Column):
        return sides[part.side].column(part.name)
    if not isinstance(part, Node):
        return pa.scalar(part)
    if part.operation in _COMPARED or part.operation == "distinct":
        return _compared(part.operation, *_alike(*(_value(inner, sides) for inner in part.parts)))
    return _APPLIED[part.operation](*(_value(inner, sides) for inner in part.parts))


def _flag(value: Any) -> Any:
    """Return a value that is true or false itself."""
    if not pa.types.is_boolean(value.type):
        raise pa.ArrowTypeError(f"{value.type} is not true or false")
    return value


_APPLIED: Final[Mapping[str, Callable[..., Any]]] = {
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "null": pc.is_null,
    "true": _flag,
}


def _compared(operation: str, left: Any, right: Any) -> Any:
    if operation != "distinct":
        return _COMPARED[operation](left, right)
    differs = pc.fill_null(pc.not_equal(left, right), fill_value=False)
    return pc.or_(differs, pc.xor(pc.is_null(left), pc.is_null(right)))


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Return both values, a literal cast to the type of the other one where it is a text or an instant."""
    if isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar):
        return left, _as(right, left.type)
    if isinstance(left, pa.Scalar) and not isinstance(right, pa.Scalar):
        return _as(left, right.type), right
    return left, right


def _as(literal: "pa.Scalar", kind: "pa.DataType") -> "pa.Scalar":
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(literal.type):
        value = literal.as_py()
        zone = None if kind.tz is None else dt.timezone.utc
        return pa.scalar(value.replace(tzinfo=zone) if value.tzinfo is None else value, kind)
    if pa.types.is_string(literal.type) and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        return literal.cast(kind)
    return literal
