"""SQL of the mysql sink about columns and about its own tables. When a statement runs is decided elsewhere.

The database of the user's table has two tables of Penstock's own: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. The view `penstock_offsets` shows the marker's offsets one by one.
Users may read all three with their own SQL. Digests are 16 hexadecimal digits, because they do not fit a bigint. Some column
names are reserved words, hence the backticks.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from dataclasses import dataclass

from penstock.sink.table.marker_store import (
    BATCH_TABLE,
    DBAPI_MARKER_TABLE,
    MARKER_TABLE,
    OWNERS_BY_DBAPI,
    MarkerSql,
    MarkerStatements,
)
from penstock.sql.mysql.statements import OWN_OPTIONS

OFFSETS_VIEW = "penstock_offsets"
_RESERVED = frozenset({"write", "schema", "rows"})
STAGE, CHOSEN = "penstock_stage", "penstock_chosen"
"""Temporary tables. They hide a user's table of the same name."""
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_history", OFFSETS_VIEW, STAGE, CHOSEN})

TABLE_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""

WARNINGS = "SHOW WARNINGS"

CREATE_MARKER = f"""
CREATE TABLE IF NOT EXISTS penstock_marker (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, table_name varchar(255) NOT NULL, `write` varchar(32) NOT NULL,
    format_version int NOT NULL,
    position bigint NOT NULL, generation bigint, query_id varchar(255), batch_id bigint, offsets longtext, `schema` longtext,
    rows_decided bigint NOT NULL, digest_decided char(16) NOT NULL,
    rows_before bigint NOT NULL, digest_before char(16) NOT NULL,
    rows_after bigint NOT NULL, digest_after char(16) NOT NULL,
    published_at datetime(6) NOT NULL, ledger_id char(32),
    PRIMARY KEY (pipeline, sink)
) {OWN_OPTIONS}
"""

CREATE_BATCH = f"""
CREATE TABLE IF NOT EXISTS penstock_batch (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, position bigint NOT NULL,
    generation bigint NOT NULL, query_id varchar(255) NOT NULL, batch_id bigint NOT NULL, offsets longtext NOT NULL,
    `rows` bigint NOT NULL, digest char(16) NOT NULL, published_at datetime(6) NOT NULL,
    PRIMARY KEY (pipeline, sink, position)
) {OWN_OPTIONS}
"""

CREATE_OFFSETS = """
CREATE SQL SECURITY INVOKER VIEW penstock_offsets AS
SELECT marker.table_name, marker.pipeline, marker.sink, source.source,
       JSON_EXTRACT(marker.offsets, CONCAT('$[', source.number - 1, '].end')) AS end_offset,
       marker.batch_id, marker.position, marker.published_at
FROM penstock_marker AS marker
JOIN JSON_TABLE(marker.offsets, '$[*]' COLUMNS (number FOR ORDINALITY, source varchar(255) PATH '$.source')) AS source
"""

ADD_LEDGER_ID = "ALTER TABLE penstock_marker ADD COLUMN ledger_id char(32)"

_OWNERS = """
SELECT pipeline, sink FROM penstock_marker
WHERE table_name = %(table)s OR (@@lower_case_table_names <> 0 AND LOWER(table_name) = LOWER(%(table)s))
ORDER BY pipeline, sink
"""

OWNERS_OF_DBAPI = OWNERS_BY_DBAPI.format(schema="DATABASE()", marker=DBAPI_MARKER_TABLE)


@dataclass(frozen=True, slots=True)
class OwnStatements:
    """The statements about Penstock's own tables in the database of the URL, whatever the `schema`."""

    schema: str = ""

    @property
    def creates(self) -> dict[str, str]:
        """Create each table if it is missing, by name."""
        return {MARKER_TABLE: CREATE_MARKER, BATCH_TABLE: CREATE_BATCH}

    @property
    def add_ledger_id(self) -> str:
        """Add the column that tables of an older Penstock lack."""
        return ADD_LEDGER_ID

    def marker_statements(self) -> MarkerStatements[str]:
        """Return the statements about markers. They update a marker's row in place: a new row would be another lock."""
        sql = MarkerSql(marker=MARKER_TABLE, batch=BATCH_TABLE, now="UTC_TIMESTAMP(6)", quoted=_quoted)
        return sql.statements(
            lock_marker=f"{sql.read()} FOR UPDATE",
            write_marker=f"UPDATE {MARKER_TABLE} SET {sql.changes} WHERE {sql.which}",
            make_marker=f"{sql.into_marker} VALUES ({sql.values})",
            owners=_OWNERS,
        )


def _quoted(name: str) -> str:
    return f"`{name}`" if name in _RESERVED else name
