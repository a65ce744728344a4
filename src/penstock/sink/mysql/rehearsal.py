"""Rehearsal of staging and of the user's own SQL before the start.

Without it, the server's first refusal would come after a decision, and would last for ever.
"""

import pyarrow as pa
import pymysql

from penstock.errors import Conflict, Failed, PublishFailed, Refused, Retryable
from penstock.sink.mysql.load import create_stage, fill_stage, run
from penstock.sink.mysql.table_schema import statements_of
from penstock.sink.mysql.table_statements import CREATE_CHOSEN, DROP_CHOSEN, DROP_STAGE, TableStatements
from penstock.sink.table.target import BY_KEY, Target, merge_fails
from penstock.sql.mysql import statements as sql
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.errors import DENIED, code_of, reason_of, translate_error


def rehearse(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Stage one row in a transaction as publishing does, and leave nothing behind. Raises Refused.

    A server may be too old for the collation, keep temporary tables out of transactions (GTIDs), find the rows too wide for its
    pages, or stand behind a proxy that blocks LOAD DATA.
    """
    try:
        connection.execute(sql.BEGIN)
        _stage_one_row(connection, rows, statements_of(rows, target), by_key=target.write in BY_KEY)
        connection.execute(sql.COMMIT)
        connection.execute(DROP_CHOSEN)
        connection.execute(DROP_STAGE)
    except PublishFailed as cause:
        raise _refused(target, cause.message.rstrip("."), "Mend that, and start again.") from cause
    except pymysql.err.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        right = "CREATE TEMPORARY TABLES on the database"
        remedy = f"GRANT {right} to the user." if code_of(cause) in DENIED else "Change the server, or the rows in the transform."
        lacking = f"the user lacks {right}: " if code_of(cause) in DENIED else ""
        raise _refused(target, lacking + reason_of(cause), remedy) from cause


def rehearse_merge(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Run the user's own SQL over no rows in a transaction that is rolled back. Raises Refused."""
    if target.merge is None:
        return
    statements = statements_of(rows, target)
    connection.execute(sql.BEGIN)
    create_stage(connection, statements, rows)
    try:
        run(connection, statements, target.merge)
    except pymysql.err.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        raise merge_fails(target.table, reason_of(cause)) from cause
    connection.execute(sql.ROLLBACK)
    connection.execute(DROP_STAGE)


def _stage_one_row(connection: Connection, rows: "pa.Schema", statements: TableStatements, *, by_key: bool) -> None:
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in rows], schema=rows)
    create_stage(connection, statements, rows)
    fill_stage(connection, statements, iter([nothing]))
    connection.execute(DROP_CHOSEN)
    connection.execute(CREATE_CHOSEN)
    if by_key:
        connection.execute(statements.choose(last=True))


def _refused(target: Target, why: str, remedy: str) -> Refused:
    return Refused(f"Rows cannot be staged for table {target.table!r}: {why}.", remedy=remedy)
