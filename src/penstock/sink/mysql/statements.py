"""All SQL of the mysql sink about the session, the catalog and its own tables: what it says and nothing about when.

Two tables of Penstock's own lie in the database of the user's table: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. Both are meant to be read with the user's own SQL. Digests are 16
hexadecimal digits, because they do not fit a bigint. Some of the columns' names are words of SQL, hence the backticks.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from penstock.sink.table.marks import MarkStatements

MARKER_TABLE = "penstock_marker"
BATCH_TABLE = "penstock_batch"
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger"})

BEGIN = "START TRANSACTION READ WRITE"
BEGIN_READ = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
COMMIT = "COMMIT"

SESSION = """
SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,\
NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO',
    time_zone = '+00:00', completion_type = 'NO_CHAIN', unique_checks = 1, foreign_key_checks = 1, sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1, max_error_count = 64, max_sort_length = 4096
"""
"""What server, user and init_connect say otherwise would change values, rows or the moment of a commit.

A server that groups by sorting takes texts for one that begin with the same `max_sort_length` bytes. Keys have 3072 at the most.
"""

NO_STATEMENT_TIMEOUT = "SET SESSION max_statement_time = 0"
"""MariaDB's."""

READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
REPEATABLE_READ = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

WAITS = """
SET SESSION innodb_lock_wait_timeout = %(lock_timeout)s, lock_wait_timeout = %(lock_timeout)s,
    wait_timeout = %(idle_timeout)s, net_read_timeout = %(idle_timeout)s
"""
"""Waits for locks end; a driver that stalls loses its session, and its locks with it."""

PATIENT = "SET SESSION net_write_timeout = 600"
"""For a reader that counts and hashes while the server waits to send more."""

VARIABLES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'version', 'read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format',
    'local_infile', 'max_allowed_packet'
)
"""

ONE_AT_A_TIME = "SELECT GET_LOCK(CONCAT('penstock.', MD5(DATABASE())), %s)"
"""Two that prepare at once would collide in the catalog. No fence: it only keeps one waiting."""
NEXT_ONE = "SELECT RELEASE_LOCK(CONCAT('penstock.', MD5(DATABASE())))"

TABLE_KIND = """
SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
"""

TABLE_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""

TABLE_UNIQUES = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""

WARNINGS = "SHOW WARNINGS"

_OPTIONS = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

CREATE_MARKER = f"""
CREATE TABLE IF NOT EXISTS penstock_marker (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, table_name varchar(255) NOT NULL, `write` varchar(32) NOT NULL,
    format_version int NOT NULL,
    position bigint NOT NULL, generation bigint, query_id varchar(255), batch_id bigint, offsets longtext, `schema` longtext,
    rows_decided bigint NOT NULL, digest_decided char(16) NOT NULL,
    rows_before bigint NOT NULL, digest_before char(16) NOT NULL,
    rows_after bigint NOT NULL, digest_after char(16) NOT NULL,
    published_at datetime(6) NOT NULL,
    PRIMARY KEY (pipeline, sink)
) {_OPTIONS}
"""

CREATE_BATCH = f"""
CREATE TABLE IF NOT EXISTS penstock_batch (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, position bigint NOT NULL,
    generation bigint NOT NULL, query_id varchar(255) NOT NULL, batch_id bigint NOT NULL, offsets longtext NOT NULL,
    `rows` bigint NOT NULL, digest char(16) NOT NULL, published_at datetime(6) NOT NULL,
    PRIMARY KEY (pipeline, sink, position)
) {_OPTIONS}
"""

_WHICH = "pipeline = %(pipeline)s AND sink = %(sink)s"

READ_MARKER = f"""
SELECT format_version, table_name, `write`, position, generation, query_id, batch_id, offsets, `schema`,
       rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after
FROM penstock_marker WHERE {_WHICH}
"""

LOCK_MARKER = f"{READ_MARKER} FOR UPDATE"

CHANGE_MARKER = f"""
UPDATE penstock_marker SET
    table_name = %(table_name)s, `write` = %(write)s, format_version = %(format_version)s, position = %(position)s,
    generation = %(generation)s, query_id = %(query_id)s, batch_id = %(batch_id)s, offsets = %(offsets)s, `schema` = %(schema)s,
    rows_decided = %(rows_decided)s, digest_decided = %(digest_decided)s, rows_before = %(rows_before)s,
    digest_before = %(digest_before)s, rows_after = %(rows_after)s, digest_after = %(digest_after)s,
    published_at = UTC_TIMESTAMP(6)
WHERE {_WHICH}
"""

MAKE_MARKER = """
INSERT INTO penstock_marker (
    pipeline, sink, table_name, `write`, format_version, position, generation, query_id, batch_id, offsets, `schema`,
    rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after, published_at
) VALUES (
    %(pipeline)s, %(sink)s, %(table_name)s, %(write)s, %(format_version)s, %(position)s, %(generation)s, %(query_id)s,
    %(batch_id)s, %(offsets)s, %(schema)s, %(rows_decided)s, %(digest_decided)s, %(rows_before)s, %(digest_before)s,
    %(rows_after)s, %(digest_after)s, UTC_TIMESTAMP(6)
)
"""

OWNERS = """
SELECT pipeline, sink FROM penstock_marker
WHERE table_name = %(table)s OR (@@lower_case_table_names <> 0 AND LOWER(table_name) = LOWER(%(table)s))
ORDER BY pipeline, sink
"""

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


def of_marks() -> MarkStatements[str]:
    """Those about markers. `CHANGE_MARKER` changes no row where there is none yet."""
    return MarkStatements(
        read_marker=READ_MARKER,
        lock_marker=LOCK_MARKER,
        write_marker=CHANGE_MARKER,
        owners=OWNERS,
        newest_batch=NEWEST_BATCH,
        read_batch=READ_BATCH,
        write_batch=WRITE_BATCH,
        forget_batches=FORGET_BATCHES,
    )
