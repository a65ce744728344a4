"""The mysql sink: rows and marker in one transaction of MySQL or MariaDB."""

from collections.abc import Mapping, Sequence
from contextlib import closing

import pymysql

from penstock.errors import OutcomeUnknown, PublishFailed
from penstock.faults import FaultPoint
from penstock.model import PipelineName, Publication, SinkName, Totals
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.admission import Admission
from penstock.sink.mysql.connection import Connection
from penstock.sink.mysql.database import LOCK_TIMEOUT_S, Database
from penstock.sink.mysql.marks import MysqlMarks, cut_off
from penstock.sink.mysql.move import move
from penstock.sink.mysql.names import require_table_name
from penstock.sink.mysql.preparation import content_of, prepare_table, require_admitted
from penstock.sink.mysql.shape import require_fit, shape_of, statements_of
from penstock.sink.mysql.trouble import reason_of
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpoolRoot
from penstock.sink.table.publication import Moved
from penstock.sink.table.server import ServerSink
from penstock.sink.table.target import BY_KEY, Target, require_write
from penstock.sparkschema import arrow_schema

BEGIN = FaultPoint("mysql.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("mysql.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("mysql.prepare", "Table and marker are created and committed.")


class MysqlSink(ServerSink[Connection]):
    """Delivers into one table of a MySQL or MariaDB database.

    `write` is `append`, `upsert` (a row replaces the one with its key), `insert_if_absent` (a row is skipped if its key is there)
    or `replace` (each batch is the whole table). Several rows of one batch with one key count in their frozen order, pieces as
    decided and rows as written: `upsert` keeps the last, `insert_if_absent` the first, at every repetition the same. Spark
    promises no order between partitions, so aggregate by the key first where it matters.

    Waits `lock_timeout_s` (whole seconds) for another session's lock, then raises Retryable.
    """

    def __init__(
        self,
        *,
        name: SinkName,
        url: str,
        table: str,
        spool: "SpoolRoot | str",
        write: str = "append",
        key: Sequence[str] = (),
        create: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        require_write(write, key)
        require_table_name(table)
        self._database = Database(url, application=f"penstock:{name}", lock_timeout_s=lock_timeout_s)
        super().__init__(
            name=name,
            spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes),
            database=self._database,
            target=Target(table=table, write=write, key=tuple(key) if write in BY_KEY else (), case_counts=True),
            create=create,
        )

    def describe(self) -> Mapping[str, str]:
        """For `penstock explain`."""
        how = self._target.write + (f" by {', '.join(self._target.key)}" if self._target.key else "")
        return {
            "stage": f"inline in the decision up to {self._spool.inline_limit_bytes} bytes a task, "
            f"else Arrow files in {self._spool.root.url}",
            "publish": "one transaction on one connection: LOAD DATA LOCAL, or INSERT where the server has local_infile off, "
            f"into a temporary table, rows ({how}) and marker into table {self._target.table} of {self._database.place}",
        }

    # --- what is MySQL's own

    def _look(self, connection: Connection) -> tuple[str, bool] | None:
        shape = shape_of(connection, self._target.table)
        if shape is None:
            return None
        slowly = "" if self._database.server.loads else " (rows go there by INSERT, since the server has local_infile off)"
        return f"{shape.kind} {self._target.table} with {len(shape.columns)} columns{slowly}", shape.kind.startswith("table")

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> Admission:
        with PREPARE.around(error=cut_off, lost=cut_off):
            return prepare_table(
                connection,
                server=self._database.server,
                pipeline=pipeline,
                sink=self._name,
                schema=schema,
                target=self._target,
                create=self._create,
            )

    def _require_admitted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        require_admitted(
            connection,
            server=self._database.server,
            pipeline=pipeline,
            sink=self._name,
            schema=schema,
            target=self._target,
            create=self._create,
        )

    def _marks(self, connection: Connection) -> MysqlMarks:
        return MysqlMarks(connection, locking=True)

    def _readable_marks(self, connection: Connection) -> MysqlMarks | None:
        return None if shape_of(connection, sql.MARKER_TABLE) is None else MysqlMarks(connection, locking=False)

    def _begin(self, connection: Connection) -> None:
        with BEGIN.around(error=cut_off, lost=cut_off):
            self._database.begin(connection)

    def _move(self, connection: Connection, publication: Publication) -> Moved:
        """The table is looked at once more, and cannot be altered until the end: its columns say what they keep."""
        schema = arrow_schema(publication.schema)
        connection.execute(statements_of(schema, self._target).hold())
        shape = shape_of(connection, self._target.table)
        assert shape is not None, "it is held"
        require_fit(shape, schema, self._target, self._database.server)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return move(connection, rows, schema, shape=shape, target=self._target, server=self._database.server)

    def _commit(self, connection: Connection) -> None:
        """After an error nobody knows whether it happened: the next try locks the marker on a new connection, and reads it."""
        if not connection.in_transaction:
            raise PublishFailed(
                f"The transaction on table {self._target.table!r} in {self._database.place} ended before its COMMIT.",
                remedy="Look for a proxy or trigger that commits, then compare: penstock verify.",
            )
        try:
            with COMMIT.around(error=cut_off, lost=cut_off):
                connection.execute(sql.COMMIT)
        except pymysql.err.Error as cause:
            raise OutcomeUnknown(
                f"The COMMIT of table {self._target.table!r} in {self._database.place} gave no answer: {reason_of(cause)}.",
                remedy="Try again: the marker in the database says whether it happened.",
            ) from cause

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
