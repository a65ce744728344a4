"""Partition fields of an Iceberg table, as `partition_by` has them: a column, or a term such as `days(seen)`."""

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform, parse_transform
from pyiceberg.types import PrimitiveType

from penstock.core.partition_term import PartitionTerm, is_term, term_of
from penstock.errors import Refused, Usage

_ENDINGS: Final = {"bucket": "bucket", "truncate": "trunc", "years": "year", "months": "month", "days": "day", "hours": "hour"}
"""How Spark names the fields of a table that it creates."""
_FIRST_ID: Final = 1000


def spec_of(partition_by: Sequence[str], columns: Schema) -> PartitionSpec:
    """Return the partitioning of a new table."""
    return PartitionSpec(*(_field(name, _FIRST_ID + at, columns) for at, name in enumerate(partition_by)))


def _field(name: str, field_id: int, columns: Schema) -> PartitionField:
    term = term_of(name, columns.column_names)
    if term is None:
        return PartitionField(columns.find_field(name).field_id, field_id, IdentityTransform(), name)
    transform = f"{term.function}[{term.number}]" if term.number else _ENDINGS[term.function]
    source_id = columns.find_field(term.column).field_id
    return PartitionField(source_id, field_id, parse_transform(transform), _free_name(term, columns.column_names))


def _free_name(term: PartitionTerm, taken: Collection[str]) -> str:
    """Return the name of the field, which no column may have."""
    name = f"{term.column}_{_ENDINGS[term.function]}"
    while name in taken:
        name += "_"
    return name


def partition_names(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """Return the fields of the partitioning as `partition_by` has them."""
    return tuple(each.name for each in named_fields(spec, schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedField:
    """A partition field as `partition_by` has it. `at`: its place in the partitioning; `kind`: the type of its values."""

    at: int
    name: str
    kind: PrimitiveType


def named_fields(spec: PartitionSpec, schema: Schema) -> Sequence[NamedField]:
    """Return the fields that `partition_by` can have: none of a column that the table has lost since, or by another function."""
    return [
        NamedField(at=at, name=name, kind=kind) for at, field in enumerate(spec.fields) for name, kind in _named(field, schema)
    ]


def _named(field: PartitionField, schema: Schema) -> Iterator[tuple[str, PrimitiveType]]:
    column = schema.find_column_name(field.source_id)
    if column is None:
        return
    kind = field.transform.result_type(schema.find_type(column))
    name = column if isinstance(field.transform, IdentityTransform) else _term(field, column)
    if name is not None and isinstance(kind, PrimitiveType):
        yield str(name), kind


def _term(field: PartitionField, column: str) -> PartitionTerm | None:
    transform = field.transform
    if isinstance(transform, BucketTransform):
        return PartitionTerm(function="bucket", number=transform.num_buckets, column=column)
    if isinstance(transform, TruncateTransform):
        return PartitionTerm(function="truncate", number=transform.width, column=column)
    return PartitionTerm(function=f"{transform}s", column=column) if isinstance(transform, TimeTransform) else None


def is_written(field: PartitionField, schema: Schema) -> bool:
    """Return whether this version writes tables with the partition field: of a whole column, and by a known function."""
    column = schema.find_column_name(field.source_id)
    if column is None or isinstance(field.transform, IdentityTransform):
        return column == field.name
    return "." not in column and _term(field, column) is not None


def is_partitioned_anew(table: Table, newest: Snapshot | None) -> bool:
    """Return whether a file was written under another partitioning: it may hold rows of any partition of today."""
    specs = table.specs()
    manifests = () if newest is None else newest.manifests(table.io)
    kept = (each for each in manifests if each.has_added_files() or each.has_existing_files())
    there = {frozenset(_made_of(specs[each.partition_spec_id])) for each in kept}
    return bool(there - {frozenset(_made_of(table.spec()))})


def _made_of(spec: PartitionSpec) -> Iterator[tuple[int, str]]:
    """Yield what the values of each field are made of: a field that was replaced may have the name of the former one."""
    return ((field.source_id, str(field.transform)) for field in spec.fields)


def require_free_names(spec: PartitionSpec, names: Container[str], *, where: str) -> None:
    """Raise Refused if columns of the rows, `names`, have the name of a partition field that is made of another column."""
    taken = (field.name for field in spec.fields if not isinstance(field.transform, IdentityTransform))
    name = next((name for name in taken if name in names), None)
    if name is not None:
        raise Refused(
            f"The table {where} has a partition named {name!r}, as a column of the rows is.",
            remedy="Rename the column in the transform.",
        )


def require_unambiguous(partition_by: Sequence[str], columns: Sequence[str]) -> None:
    """Raise Usage for an entry that could mean two things, or that makes another one redundant."""
    both = next((name for name in partition_by if name in columns and is_term(name)), None)
    if both is not None:
        raise Usage(
            f"partition_by has {both!r}, which is a column of the rows as well as a term of one.",
            remedy="Rename the column in the transform.",
        )
    families = [(name, (name, "") if (term := term_of(name, columns)) is None else term.family) for name in partition_by]
    seen: dict[tuple[str, str], str] = {}
    for name, family in families:
        if family in seen:
            raise Usage(
                f"partition_by has {seen[family]!r} and {name!r}, expected one partition of that kind for each column.",
                remedy="Leave one of them out: the finer one serves readers that look for the coarser one.",
            )
        seen[family] = name
