"""SQL of the mysql sink about columns and about its own tables. When a statement runs is decided elsewhere.

The database of the user's table has two tables of Penstock's own: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. The view `penstock_offsets` shows the marker's offsets one by one.
Users may read all three with their own SQL. Digests are 16 hexadecimal digits, because they do not fit a bigint. Some column
names are reserved words, hence the backticks.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from dataclasses import dataclass

from penstock.sink.table.marker_store import BATCH_TABLE, DBAPI_MARKER_TABLE, MARKER_TABLE, OWNERS_BY_DBAPI, MarkerStatements
from penstock.sql.mysql.statements import OWN_OPTIONS

OFFSETS_VIEW = "penstock_offsets"
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

_WHICH = "pipeline = %(pipeline)s AND sink = %(sink)s"

ADD_LEDGER_ID = "ALTER TABLE penstock_marker ADD COLUMN ledger_id char(32)"

READ_MARKER = f"""
SELECT format_version, table_name, `write`, position, generation, query_id, batch_id, offsets, `schema`,
       rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after, ledger_id
FROM penstock_marker WHERE {_WHICH}
"""

READ_UNNAMED = READ_MARKER.replace(", ledger_id\n", ", NULL\n")

LOCK_MARKER = f"{READ_MARKER} FOR UPDATE"

CHANGE_MARKER = f"""
UPDATE penstock_marker SET
    table_name = %(table_name)s, `write` = %(write)s, format_version = %(format_version)s, position = %(position)s,
    generation = %(generation)s, query_id = %(query_id)s, batch_id = %(batch_id)s, offsets = %(offsets)s, `schema` = %(schema)s,
    rows_decided = %(rows_decided)s, digest_decided = %(digest_decided)s, rows_before = %(rows_before)s,
    digest_before = %(digest_before)s, rows_after = %(rows_after)s, digest_after = %(digest_after)s,
    published_at = UTC_TIMESTAMP(6), ledger_id = %(ledger_id)s
WHERE {_WHICH}
"""

MAKE_MARKER = """
INSERT INTO penstock_marker (
    pipeline, sink, table_name, `write`, format_version, position, generation, query_id, batch_id, offsets, `schema`,
    rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after, published_at, ledger_id
) VALUES (
    %(pipeline)s, %(sink)s, %(table_name)s, %(write)s, %(format_version)s, %(position)s, %(generation)s, %(query_id)s,
    %(batch_id)s, %(offsets)s, %(schema)s, %(rows_decided)s, %(digest_decided)s, %(rows_before)s, %(digest_before)s,
    %(rows_after)s, %(digest_after)s, UTC_TIMESTAMP(6), %(ledger_id)s
)
"""

OWNERS = """
SELECT pipeline, sink FROM penstock_marker
WHERE table_name = %(table)s OR (@@lower_case_table_names <> 0 AND LOWER(table_name) = LOWER(%(table)s))
ORDER BY pipeline, sink
"""

OWNERS_OF_DBAPI = OWNERS_BY_DBAPI.format(schema="DATABASE()", marker=DBAPI_MARKER_TABLE)

NEWEST_BATCH = f"SELECT MAX(position) FROM penstock_batch WHERE {_WHICH}"

READ_BATCH = f"""
SELECT query_id, batch_id, offsets, `rows`, digest FROM penstock_batch WHERE {_WHICH} AND position = %(position)s
"""

WRITE_BATCH = """
INSERT INTO penstock_batch (
    pipeline, sink, position, generation, query_id, batch_id, offsets, `rows`, digest, published_at
) VALUES (
    %(pipeline)s, %(sink)s, %(position)s, %(generation)s, %(query_id)s, %(batch_id)s, %(offsets)s, %(rows)s, %(digest)s,
    UTC_TIMESTAMP(6)
)
"""

FORGET_BATCHES = f"DELETE FROM penstock_batch WHERE {_WHICH} AND position <= %(position)s"


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
        return MarkerStatements(
            read_marker=READ_MARKER,
            read_unnamed=READ_UNNAMED,
            lock_marker=LOCK_MARKER,
            write_marker=CHANGE_MARKER,
            owners=OWNERS,
            newest_batch=NEWEST_BATCH,
            read_batch=READ_BATCH,
            write_batch=WRITE_BATCH,
            forget_batches=FORGET_BATCHES,
            make_marker=MAKE_MARKER,
        )
