"""SQL that the mysql sink and ledger share: about the session, transactions, the server and its catalog; names in SQL."""

from penstock.errors import Usage

BEGIN = "START TRANSACTION READ WRITE"
BEGIN_READ = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

SORTED_BYTES = 4096
"""How much of a text is compared for certain, by a sort and by a server that groups by sorting. Keys have at most 3072 bytes.

The setting counts the length of a binary text, too, which some servers compare as a part of it.
"""

SESSION = f"""
SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,\
NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO',
    autocommit = 1, time_zone = '+00:00', completion_type = 'NO_CHAIN', unique_checks = 1, foreign_key_checks = 1,
    sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, max_error_count = 64, sql_notes = 1,
    max_sort_length = {SORTED_BYTES + 64}
"""
"""Overrides settings of server, user and init_connect that would change values, rows or the moment of a commit.

The client requests autocommit before `init_connect` runs.
"""

NO_STATEMENT_TIMEOUT = {
    "max_statement_time": "SET SESSION max_statement_time = 0",
    "max_execution_time": "SET SESSION max_execution_time = 0",
}
"""By variable: MariaDB's and MySQL's, neither of which the other knows."""

READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
REPEATABLE_READ = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

WAITS = """
SET SESSION innodb_lock_wait_timeout = %(lock_timeout)s, lock_wait_timeout = %(lock_timeout)s,
    wait_timeout = %(idle_timeout)s, net_read_timeout = %(idle_timeout)s
"""
"""Bounds the waits for locks; a driver that stalls loses its session, and its locks with it."""

PATIENT = "SET SESSION net_write_timeout = 600"
"""For a reader that counts and hashes while the server waits to send more."""

VARIABLES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'version', 'read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format',
    'local_infile', 'max_allowed_packet', 'max_statement_time', 'max_execution_time', 'innodb_flush_method'
)
"""

REDO_LOG = "SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'"
"""Returns no row on MariaDB, and on MySQL before 8.0.21, which cannot switch the log off."""

TAKE_LOCK = "SELECT GET_LOCK(CONCAT('penstock.', MD5(DATABASE())), %s)"
"""Serializes preparations, which would collide in the catalog. It is no fence: it only makes one wait."""
RELEASE_LOCK = "SELECT RELEASE_LOCK(CONCAT('penstock.', MD5(DATABASE())))"

TABLE_KIND = """
SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
"""

TABLE_UNIQUES = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""

TABLE_TRIGGER = """
SELECT 1 FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = %s LIMIT 1
"""

OWN_OPTIONS = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""The options of Penstock's own tables."""

MAX_NAME_CHARACTERS = 64


def require_table_name(name: str) -> str:
    """Return `name` if it names a table in the database of the URL. Raises Usage."""
    if "." in name:
        raise Usage(
            f"`table` is {name!r}, which is no name of a table in the database.",
            remedy="Name the database in `url`, and the table alone in `table`.",
        )
    return require_name(name)


def require_name(name: str) -> str:
    """Return `name` if MySQL allows it. Raises Usage."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        found = f"expected 1 to {MAX_NAME_CHARACTERS} characters, found {len(name)}"
    elif name.endswith(" ") or any(letter == "\0" or letter > "\uffff" for letter in name):
        found = "it ends with a blank, or has NUL or a character beyond U+FFFF"
    else:
        return name
    raise Usage(f"MySQL does not allow the name {name!r}: {found}.", remedy="Rename it.")


def quoted(name: str) -> str:
    """Return the name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
