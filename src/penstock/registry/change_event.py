"""Debezium's change events: recognises what a record is, and takes the row, the operation and the source's position from it.

Works on the fields of an envelope as plain values, however they were encoded.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.model import Json
from penstock.registry.wire import Undecodable

CHANGE: Final = "change"
"""The column beside the row that says how it changed."""
_COLUMNS = {
    "op": "string",
    "position": "string",
    "timestamp": "timestamp",
    "snapshot": "boolean",
    "transaction": "string",
}
CHANGE_TYPE: Final[Json] = {
    "type": "struct",
    "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()],
}
"""The type of the column CHANGE, in Spark's JSON."""

ENVELOPE_FIELDS = frozenset({"before", "after", "source", "op"})
_HEARTBEAT_FIELDS = frozenset({"ts_ms", "ts_us", "ts_ns"})
_UPSERTS, _DELETE, _TRUNCATE, _MESSAGE = frozenset({"r", "c", "u"}), "d", "t", "m"
_NO_SNAPSHOT = frozenset({None, False, "false"})
_FILE_NUMBER = re.compile(r".*\.(\d{1,10})")
_LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")
_BEFORE_ALL = "00000000:00000000:0000"
_LONGEST = 2**63

OF_TABLE = "Subscribe to the topic of the table alone."
_TRUNCATED = (
    "Put the record aside by `undecodable: quarantine`. When the pipeline has no lag, delete the rows from the table whose last "
    "change has a lower `change.position`, which needs it as a column; `verify` reports them as missing from then on. Or fill a "
    "new table, and have the connector leave such events out (skipped.operations: t)."
)


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One change of a row. `row`: its columns after the change, before it for a delete. `before`: null unless it is known.

    `change`: the values of the column CHANGE.
    """

    row: Mapping[str, Any]
    before: Mapping[str, Any] | None
    change: Mapping[str, Any]

    @property
    def deletes(self) -> bool:
        """Whether the row is gone."""
        return bool(self.change["op"] == _DELETE)


def change_event(found: Any) -> ChangeEvent | None:
    """Return the change that a value describes, None for a heartbeat, which describes none. Raises Undecodable for all others."""
    if not isinstance(found, dict):
        raise Undecodable(f"it is no change event: it should be an object, found {type(found).__name__}")
    if "op" not in found or "source" not in found:
        _require_heartbeat(found)
        return None
    op, source = _text(found["op"], "op"), _object(found["source"], "source")
    if source.get("connector") == "mongodb":
        raise Undecodable("it is a change of MongoDB, whose documents have no columns", remedy="Read the values as text.")
    if op == _TRUNCATE:
        position = f", at position {_position(source)}"
        raise Undecodable(f"the table was truncated (op t{position}), which no single row says", remedy=_TRUNCATED)
    if op == _MESSAGE:
        raise Undecodable("it is a message of logical decoding (op m), and no change of a row", remedy=OF_TABLE)
    side = "before" if op == _DELETE else "after"
    if op != _DELETE and op not in _UPSERTS:
        raise Undecodable(f"its op is {op!r}, expected one of c, u, d, r, t and m")
    if found.get(side) is None:
        raise Undecodable(f"its op is {op}, and `{side}` is null", remedy=_WITHOUT_ROW)
    before = found.get("before")
    return ChangeEvent(
        row=_object(found[side], side), before=before if isinstance(before, dict) else None, change=dict(_change(found, source))
    )


_WITHOUT_ROW = (
    "Have the database log the rows: REPLICA IDENTITY DEFAULT with a primary key, or FULL, in PostgreSQL; binlog_row_image=FULL "
    "in MySQL."
)


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Undecodable(f"its `{name}` should be an object, found {type(value).__name__}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Undecodable(f"its `{name}` should be a text, found {type(value).__name__}")
    return value


def _require_heartbeat(found: Mapping[str, Any]) -> None:
    """Raise Undecodable for a record that is no change, unless it is a heartbeat."""
    if found and found.keys() <= _HEARTBEAT_FIELDS:
        return
    if "databaseName" in found and found.keys() & {"ddl", "tableChanges"}:
        raise Undecodable("it is a change of a schema, and no change of a row", remedy=OF_TABLE)
    if found.keys() >= {"status", "id"} and found["status"] in ("BEGIN", "END"):  # which may be no text
        raise Undecodable(f"it is the {found['status']} of a transaction, and no change of a row", remedy=OF_TABLE)
    fields = ", ".join(sorted(found)[:5])
    raise Undecodable(f"it is no change event: it has no fields op and source, found {fields or 'none'}", remedy=_FLATTENED)


_FLATTENED = "Take transforms such as ExtractNewRecordState out of the connector, or `envelope` out of `decode`."


def _change(found: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "op", found["op"]
    yield "position", _position(source)
    yield "timestamp", _microseconds(source)
    yield "snapshot", _is_snapshot(source.get("snapshot"))
    yield "transaction", _transaction(found, source)


def _is_snapshot(value: Any) -> bool:
    if value is not None and not isinstance(value, bool | str):
        raise Undecodable(f"its `source.snapshot` should be a text, found {type(value).__name__}")
    return value not in _NO_SNAPSHOT


def _microseconds(source: Mapping[str, Any]) -> int | None:
    for name, unit in (("ts_us", 1), ("ts_ms", 1000), ("ts_usec", 1)):
        found = _whole(source.get(name))
        if found is not None and abs(found * unit) < _LONGEST:
            return found * unit
    return None


def _transaction(found: Mapping[str, Any], source: Mapping[str, Any]) -> str | None:
    """Return the id that the connector gives to the transaction, else that of the database."""
    given = found.get("transaction")
    named = [given.get("id") if isinstance(given, dict) else None, source.get("txId"), source.get("gtid")]
    return next((str(one) for one in named if one is not None), None)


def _position(source: Mapping[str, Any]) -> str | None:
    """Return where the change is in the log of its database, as a text that is greater for a later change.

    None for a connector whose positions have no order that is known here.
    """
    of = _POSITIONS.get(str(source.get("connector")))
    return None if of is None else of(source)


def _of_postgres(source: Mapping[str, Any]) -> str | None:
    return _padded((source.get("lsn"), 20))


def _of_mysql(source: Mapping[str, Any]) -> str | None:
    file = _FILE_NUMBER.fullmatch(str(source.get("file")))
    row = source.get("row")
    return None if file is None else _padded((int(file[1]), 10), (source.get("pos"), 20), (0 if row is None else row, 10))


def _of_sql_server(source: Mapping[str, Any]) -> str | None:
    """Return commit, change and the event's number in it. Rows of a snapshot have a commit only."""
    commit, change, number = (source.get(name) for name in ("commit_lsn", "change_lsn", "event_serial_no"))
    lsns = [str(lsn or _BEFORE_ALL).lower() for lsn in (commit, change)]
    serial = _padded((0 if number is None else number, 10))
    if not commit or serial is None or not all(map(_LSN.fullmatch, lsns)):
        return None
    return "/".join((*lsns, serial))


def _padded(*numbers: tuple[Any, int]) -> str | None:
    """Return numbers as text of fixed widths, which sorts as they do; None if one is missing or no natural number."""
    found = [(_whole(number), width) for number, width in numbers]
    if any(number is None or not 0 <= number < 10**width for number, width in found):
        return None
    return "/".join(f"{number:0{width}d}" for number, width in found)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_POSITIONS: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "postgresql": _of_postgres,
    "mysql": _of_mysql,
    "mariadb": _of_mysql,
    "sqlserver": _of_sql_server,
}
