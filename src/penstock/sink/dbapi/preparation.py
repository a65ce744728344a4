"""Preparation of a table behind any driver: it is created or looked at, tried once, and its marker is created."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.model import PipelineName, SinkName, Totals, new_nonce
from penstock.errors import Refused, Usage
from penstock.sink.dbapi import statements as sql
from penstock.sink.dbapi.database import DbapiMarkerStore, has, inserts_of, marker_store_of, quotes_of, reason_of
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.load import scan
from penstock.sink.dbapi.postgres_catalog import has_catalog, require_kept
from penstock.sink.dbapi.row_validator import RowValidator
from penstock.sink.dbapi.statements import BATCH_TABLE, MARKER_TABLE, OWN, QUOTES, TableStatements
from penstock.sink.dbapi.storage import STORAGES
from penstock.sink.dbapi.trial import Trial, TrialResult
from penstock.sink.dbapi.trial_record import catalog_of, declared_of, decode_trial, encode_trial
from penstock.sink.table.columns import Alter, Columns, require_distinct_names, require_exact_key
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.preparation import (
    ledger_id_missing,
    prepare_marker,
    require_continuing,
    require_not_lost,
    require_same_types,
    require_unfilled,
    settings_of,
)
from penstock.sink.table.publication import totals_of
from penstock.sink.table.target import Target, no_table, require_key_in, table_gone
from penstock.spark.schema import arrow_schema

_GENERATED, _COLUMN = re.compile(r"generated (column|always)", re.IGNORECASE), re.compile(r"""column ['"](.+?)['"]""")
"""What SQLite, PostgreSQL, MySQL and MariaDB report for a value in a column that they generate, and the column's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DbapiSettings:
    """What a sink demands of its table. `columns`: types for a table that is created. `longest`: see `Trial`."""

    pipeline: PipelineName
    sink: SinkName
    target: Target
    schema: str
    create: bool
    adds_columns: bool
    columns: Mapping[str, str]
    longest: int

    @property
    def rows(self) -> "pa.Schema":
        """The Arrow schema of the rows."""
        return arrow_schema(self.schema)

    def shape(self, declared: str) -> str:
        """Return a hash of all that a trial depends on. `declared`: the result of `declared_of`."""
        shape_json = json.dumps([self.schema, self.target.table, self.target.key, self.longest, declared])
        return hashlib.sha256(shape_json.encode()).hexdigest()[:16]

    def statements(self, quotes: tuple[str, str]) -> TableStatements:
        return TableStatements("", self.target.table, tuple(self.rows.names), self.target.key, quotes=quotes)


def prepare_table(session: Session, wanted: DbapiSettings) -> RowValidator:
    """Create or check the table, try it, create or check its marker; return the row check. Raise Usage, Refused."""
    require_storable(wanted)
    _require_kept(session, wanted, quotes_of(session, wanted.target.table))
    quotes = own_tables(session)
    _require_undone(session, wanted)
    statements = replace(wanted.statements(quotes), inserts=inserts_of(session))
    owner = {"pipeline": wanted.pipeline, "sink": wanted.sink}
    exists = has(session, sql.is_there(statements.name))
    marker = DbapiMarkerStore(session, locking=True).read(wanted.pipeline, wanted.sink)
    session.rollback()
    require_not_lost(marker, wanted.target, exists=exists)
    if marker is None and has(session, sql.is_there(statements.native_marker)):
        owners = session.execute(statements.native_owners).fetchall()
        session.rollback()
        its_own = [(pipeline, sink, named.rpartition(".")[2], schema) for pipeline, sink, named, schema in owners]
        require_unfilled(its_own, statements.table)
    require_same_types(marker, wanted.rows, wanted.target)  # else the trial could not read what is there
    if not exists:
        _create(session, wanted, statements)
    elif wanted.adds_columns:
        _add_columns(session, wanted, statements)
    require_columns(session, statements, wanted.rows, columns=wanted.columns)
    session.rollback()
    shape = wanted.shape(declared_of(session, catalog_of(session), wanted.target.table))
    session.rollback()
    result = _trial_result(session, wanted, statements, shape)
    prepare_marker(
        DbapiMarkerStore(session, locking=True),
        pipeline=wanted.pipeline,
        sink=wanted.sink,
        schema=wanted.schema,
        target=wanted.target,
        content=lambda _: _content(session, statements, wanted.rows, wanted),
    )
    session.execute(sql.WRITE_TRIAL, {**owner, "trial": encode_trial(result, shape=shape)})
    session.commit()
    required = frozenset((*result.required, *wanted.target.key))
    return RowValidator(
        sink=wanted.sink, table=wanted.target.table, required=required, lacking=result.lacking, longest=result.longest
    )


def require_schema_accepted(session: Session, wanted: DbapiSettings) -> None:
    """Raise what `prepare_table` would raise, as far as that can be found out without writing."""
    require_storable(wanted)
    quotes = quotes_of(session, wanted.target.table)
    _require_kept(session, wanted, quotes)
    if quotes is None:
        require_not_lost(_marker(session, wanted), wanted.target, exists=False)
        if not wanted.create:
            raise no_table(wanted.target.table)
        return
    statements = wanted.statements(quotes)
    missing = set(_missing(session, statements, wanted)) if wanted.adds_columns else set()
    there = pa.schema([field for field in wanted.rows if field.name not in missing])
    found = replace(statements, columns=tuple(there.names))
    require_columns(session, found, there, columns=wanted.columns)
    _require_continuing(session, wanted, content=lambda _: _content(session, found, there, wanted))


def _require_continuing(session: Session, wanted: DbapiSettings, *, content: Callable[[str], Totals]) -> None:
    """Raise Refused if the published rows cannot go on with these. `content` counts the columns that the table has already."""
    if not has(session, sql.is_there(MARKER_TABLE)):
        return
    require_continuing(
        _marker(session, wanted),
        marker_store_of(session, locking=False),
        pipeline=wanted.pipeline,
        sink=wanted.sink,
        schema=wanted.schema,
        target=wanted.target,
        content=content,
    )


def _marker(session: Session, wanted: DbapiSettings) -> TableMarker | None:
    if not has(session, sql.is_there(MARKER_TABLE)):
        return None
    return marker_store_of(session, locking=False).read(wanted.pipeline, wanted.sink)


def _content(session: Session, statements: TableStatements, rows: "pa.Schema", wanted: DbapiSettings) -> Totals:
    return totals_of(scan(session, statements.read(), rows), wanted.target.row_digest)


def require_storable(wanted: DbapiSettings) -> None:
    """Raise Usage for rows that no table can take, or for whose types not every database has one."""
    rows, key = wanted.rows, wanted.target.key
    with settings_of(wanted.sink):
        if not rows.names or not all(rows.names):
            raise Usage("The rows have no column, or one without a name.", remedy="Name columns in the transform.")
        require_distinct_names([name.lower() for name in rows.names])
        require_key_in(rows, key, rows.names)
        strange = sorted(wanted.columns.keys() - set(rows.names))
        if strange:
            raise Usage(f"`columns` names {strange[0]!r}, but the rows have {', '.join(rows.names)}.", remedy="Correct it.")
        for field in rows:
            _require_type(field)
        require_exact_key(rows, key)


def _require_kept(session: Session, wanted: DbapiSettings, quotes: tuple[str, str] | None) -> None:
    """Raise GuaranteeTooWeak or Refused where PostgreSQL's catalog shows that rows would be lost or hidden. End the transaction.

    `quotes`: as `quotes_of` found them; Penstock's own tables may be there without the target's.
    """
    named = wanted.statements(quotes or QUOTES[0]).name
    if has_catalog(session, named):
        require_kept(session, wanted.target, named)
        session.rollback()


def own_tables(session: Session) -> tuple[str, str]:
    """Create Penstock's tables where they are missing, and return how names are quoted. Raise Refused."""
    for name, statement in OWN.creates.items():
        there = sql.is_there(name)
        if not has(session, there):
            _define(session, statement, name, there)
    _name_markers(session)
    quotes = quotes_of(session, MARKER_TABLE)
    if quotes is None:
        raise Refused(f"The table {MARKER_TABLE} cannot be read.", remedy="Grant SELECT on it.")
    return quotes


def _name_markers(session: Session) -> None:
    """Add the column `ledger_id` to an older Penstock's marker table, unless another process adds it meanwhile."""
    if has(session, sql.HAS_LEDGER_ID):
        return
    try:
        session.execute(sql.ADD_LEDGER_ID)
        session.commit()
    except session.driver.error as cause:
        session.rollback()
        if not has(session, sql.HAS_LEDGER_ID):
            raise ledger_id_missing(sql.ADD_LEDGER_ID, reason_of(cause)) from cause


def _define(session: Session, statement: str, table: str, there: str, *, how: str = "created") -> None:
    """Create or alter a table. Raise Refused where that fails and the query `there` fails, too: no other process did it."""
    try:
        session.execute(statement)
        session.commit()
    except session.driver.error as cause:
        session.rollback()
        if not has(session, there):
            raise Refused(
                f"Table {table!r} cannot be {how}: {reason_of(cause)}. The statement was: {statement}",
                remedy="Give its columns the types of this database by `columns:`, or run a statement of your own.",
            ) from cause


def _create(session: Session, wanted: DbapiSettings, statements: TableStatements) -> None:
    if not wanted.create:
        raise no_table(wanted.target.table)
    declared = [*_declared(wanted.rows, wanted.columns).values()]
    _define(session, statements.create(declared), wanted.target.table, sql.is_there(statements.name))


def _add_columns(session: Session, wanted: DbapiSettings, statements: TableStatements) -> None:
    """Add the columns that the table lacks, unless another process adds them meanwhile. Raise Refused."""
    of, declared = _columns(statements, decided=False), _declared(wanted.rows, wanted.columns)
    for name in _missing(session, statements, wanted):
        statement = of.statement(of.alter.add, name, declared[name])
        _define(session, statement, statements.table, replace(statements, columns=(name,)).fits, how="altered")


def _missing(session: Session, statements: TableStatements, wanted: DbapiSettings) -> Sequence[str]:
    """Return the columns that the table lacks and that may be added: never a key, nor all of them, which is another table."""
    if has(session, statements.fits):
        return ()
    missing = [name for name in wanted.rows.names if not has(session, replace(statements, columns=(name,)).fits)]
    return () if len(missing) == len(wanted.rows) or set(missing).intersection(wanted.target.key) else missing


def _declared(rows: "pa.Schema", columns: Mapping[str, str]) -> Mapping[str, str]:
    """Return the type of each column of a table that is created."""
    return {field.name: columns.get(field.name) or STORAGES.of(field.type).declared(field.type) for field in rows}


def require_columns(
    session: Session, statements: TableStatements, rows: "pa.Schema", *, columns: Mapping[str, str], decided: bool = False
) -> None:
    """Raise Refused, and roll back, unless the table has the rows' columns. `decided`: see `Columns`."""
    try:
        session.execute(statements.fits).fetchall()
    except session.driver.error as cause:
        session.rollback()
        if decided and not has(session, sql.is_there(statements.name)):
            raise table_gone(statements.table) from cause
        missing = [name for name in rows.names if not has(session, replace(statements, columns=(name,)).fits)]
        declared = _declared(rows, columns)
        there = {name: kind for name, kind in declared.items() if name not in missing}
        _columns(statements, decided=decided).require_same(declared, there, missing=missing or rows.names, demanded=())
        raise AssertionError("some column is missing") from cause


@contextmanager
def generated_columns_refused(session: Session, statements: TableStatements) -> Iterator[None]:
    """Raise Refused, and roll back, where the driver reports that the database generates a column of the decided rows."""
    try:
        yield
    except session.driver.error as cause:
        column = _COLUMN.search(str(cause)) if _GENERATED.search(str(cause)) else None
        if column is None:
            raise
        session.rollback()
        _columns(statements, decided=True).require_not_generated(column[1], generated=True)


def _columns(statements: TableStatements, *, decided: bool) -> Columns:
    alter = Alter(quoted=statements.quoted)
    return Columns(table=statements.table, named=statements.name, alter=alter, decided=decided)


def _trial_result(session: Session, wanted: DbapiSettings, statements: TableStatements, shape: str) -> TrialResult:
    known = known_to_keep(session, wanted.pipeline, wanted.sink, shape)
    session.rollback()
    trial = Trial(session, statements, wanted.rows, longest=wanted.longest)
    if known is None:
        return trial.run()
    trial.require_undone()
    return known


def known_to_keep(session: Session, pipeline: PipelineName, sink: SinkName, shape: str) -> TrialResult | None:
    """Return the newest trial's result, None if it was of another `shape`. Raise LedgerMismatch, FormatTooNew."""
    row = session.execute(sql.READ_TRIAL, {"pipeline": pipeline, "sink": sink}).fetchone()
    return None if row is None or row[0] is None else decode_trial(row[0], shape=shape)


def _require_undone(session: Session, wanted: DbapiSettings) -> None:
    """Raise Refused if a made-up marker or batch remains after a rollback: a marker that remains would hide lost rows."""
    pipeline, sink = PipelineName(f"={new_nonce()}"), wanted.sink
    place = {"pipeline": pipeline, "sink": sink, "position": 0}
    nothing = {"generation": 0, "query_id": "-", "batch_id": 0, "offsets": "-", "rows": 0, "digest": "-"}
    markers = DbapiMarkerStore(session, locking=False)
    markers.write(TableMarker(pipeline=pipeline, sink=sink, table_name="=", write="="))
    session.execute(sql.statement(OWN.write_batch), {**place, **nothing})
    session.rollback()
    stayed = [BATCH_TABLE] if session.execute(sql.statement(OWN.read_batch), place).fetchone() else []
    stayed += [MARKER_TABLE] if markers.read(pipeline, sink) else []
    if not stayed:
        session.rollback()
        return
    session.execute(sql.DELETE_BATCH, place)
    session.execute(sql.DELETE_MARKER, {"pipeline": pipeline, "sink": sink})
    session.commit()
    raise Refused(
        f"The database keeps what was rolled back, seen in {' and '.join(stayed)}: rows and marker could not commit together.",
        remedy="Take `autocommit` out of `connect:`, and let all tables be ones with transactions.",
    )


def _require_type(field: "pa.Field") -> None:
    try:
        STORAGES.of(field.type)
    except TypeError:
        raise Usage(
            f"Column {field.name!r} is {field.type}, a type that some databases lack.",
            remedy="Cast it in the transform, to STRING say, or use a sink made for this database.",
        ) from None
