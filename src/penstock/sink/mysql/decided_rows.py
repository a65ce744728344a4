"""Checks of a decided batch against columns narrowed since the decision, where MySQL would change values silently.

In place of NULL, MySQL writes the next number of an AUTO_INCREMENT or the time of a timestamp, and warns of neither. It cuts
excess trailing blanks off a text, with a note that a server, a user or MariaDB's note_verbosity can switch off.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.mysql.storage import most_characters
from penstock.sink.mysql.table_schema import ALTER, Column, TableSchema
from penstock.sink.table.columns import Alter, Columns, Lengths, lengths_of
from penstock.sink.table.target import Target
from penstock.sql.mysql.names import quoted
from penstock.sql.mysql.server import Server

_PRIMARY = "PRIMARY"
_LONGEST_KEY = 768
"""In characters. An index takes 3072 bytes."""
_ALTER_KEY = replace(ALTER, nullable=f"{ALTER.nullable}, DROP PRIMARY KEY")


def required(
    batches: Iterator["pa.RecordBatch"], table_schema: TableSchema, schema: "pa.Schema", target: Target, server: Server
) -> Iterator["pa.RecordBatch"]:
    """Return the batches. Iteration raises Refused at the first one with a value that its column cannot store unchanged.

    Nothing is checked for `write: merge`: only the user's own SQL says what becomes of the values.
    """
    if target.merge is not None:
        return batches
    for lengths in _lengths(table_schema, schema, target, server):
        batches = lengths.required(batches)
    return _without_nulls(batches, table_schema, target)


def _lengths(table_schema: TableSchema, schema: "pa.Schema", target: Target, server: Server) -> Iterator[Lengths]:
    most = lengths_of(schema, lambda name: most_characters(_column(table_schema, name).declared))
    in_key = {name.lower() for name in target.key}
    for is_key, declared in ((True, f"varchar({_LONGEST_KEY}) COLLATE {server.exact_collation}"), (False, "longtext")):
        some = {name: length for name, length in most.items() if (name.lower() in in_key) == is_key}
        yield Lengths(of=_columns(target), most=some, measure=pc.utf8_length, unit="characters", declared=declared)


def _without_nulls(batches: Iterator["pa.RecordBatch"], table_schema: TableSchema, target: Target) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            column = _column(table_schema, name)
            if values.null_count and column.not_null:
                alter = _ALTER_KEY if name.lower() in table_schema.uniques.get(_PRIMARY, frozenset()) else ALTER
                collate = f" COLLATE {column.collation}" if column.collation else ""
                raise _columns(target, alter).takes_no_null(column.name, column.declared + collate)
        yield batch


def _columns(target: Target, alter: Alter = ALTER) -> Columns:
    return Columns(table=target.table, named=quoted(target.table), alter=alter, decided=True)


def _column(table_schema: TableSchema, name: str) -> Column:
    column = table_schema.column(name)
    assert column is not None, "the table was compared with the rows"
    return column
