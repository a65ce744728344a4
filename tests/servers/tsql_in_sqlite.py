"""T-SQL as SQLite takes it, of the statements that the sqlserver sink has, and values that SQLite gives back as they were."""

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

NAME = r"\[(?:[^\]]|\]\])*\]"
QUOTED = r'"(?:[^"]|"")*"'
_DEFINED = r"I \w+(?:\([\w,]+\))?(?: COLLATE \w+)?(?: NOT NULL| NULL)"
_HINT = re.compile(r" WITH \((?:UPDLOCK|HOLDLOCK|ROWLOCK|REPEATABLEREAD|, )+\)")
MERGE = re.compile(
    rf"MERGE INTO (?P<table>{QUOTED}) AS t USING \((?P<rows>.*)\) AS s ON (?P<same>.*) "
    r"WHEN MATCHED THEN UPDATE SET (?P<changes>.*) "
    r"WHEN NOT MATCHED BY TARGET THEN INSERT \((?P<columns>.*)\) VALUES \((?P<values>.*)\);",
    re.DOTALL,
)
COLUMN = re.compile(
    rf"(?P<name>{NAME}) (?P<type>\w+(?:\([\w,]+\))?)(?: COLLATE (?P<collation>\w+))?(?: (?P<null>NOT NULL|NULL))?"
)


def recorded(statement: str) -> str:
    """The statement as it stands in a dialogue: names are I, and lists of them are short."""
    text = " ".join(re.sub(NAME, "I", statement).split())
    text = re.sub(r"LOCK_TIMEOUT \d+", "LOCK_TIMEOUT n", text)
    text = re.sub(rf"{_DEFINED}(?:, {_DEFINED})*", "I …", text)
    text = re.sub(r"\b(([st]\.)?I = [st]\.I)(?:( AND|,) ([st]\.)?I = [st]\.I)+", r"\1\3 …", text)
    return re.sub(r"\b([st]\.)?I(?:, ([st]\.)?I)+", r"\1I, …", text)


def translate(text: str) -> str:
    """The statement without its hints, and with names and functions as SQLite has them."""
    top, text = " TOP (1)" in text, _HINT.sub("", text).replace(" TOP (1)", "")
    text = re.sub(rf"{NAME}\.{NAME}|{NAME}", lambda found: plain(found[0]), text)
    text = text.replace("#penstock_stage", 'temp."#penstock_stage"').replace(
        "SYSUTCDATETIME()", "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    )
    text = re.sub(rf"(s\.{QUOTED}) = ([01])\b", r"\1 = char(0, 0) || 'b\2'", text)  # a bit, as `stored` has it
    return f"{text} LIMIT 1" if top else text


def merged(merge: "re.Match[str]") -> tuple[str, str]:
    """What MERGE does, as two statements."""
    table, rows, same = merge["table"], merge["rows"], merge["same"]
    changes = re.sub(rf"t\.({QUOTED}) = s\.", r"\1 = s.", merge["changes"])
    absent = f"NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {same})"
    return (
        f"UPDATE {table} AS t SET {changes} FROM ({rows}) AS s WHERE {same}",
        f"INSERT INTO {table} ({merge['columns']}) SELECT {merge['values']} FROM ({rows}) AS s WHERE {absent}",
    )


def split_definition(text: str) -> tuple[str, str]:
    """The table that is created, and what is in the parentheses."""
    found = re.match(rf"CREATE TABLE ({NAME}\.{NAME}|#\w+) \((.*)\)", text, re.DOTALL)
    assert found is not None, text
    return found[1], found[2]


def plain(name: str) -> str:
    parts = [part[1:-1].replace("]]", "]") for part in re.findall(NAME, name)]
    return '"' + ".".join(parts).replace('"', '""') + '"'


def unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')


def placed(name: str) -> str:
    return f'temp."{name}"' if name.startswith("#") else plain(name)


def described(found: "re.Match[str]") -> tuple[Any, ...]:
    """Name, type, length, precision, scale, collation and whether it may be NULL, as sys.columns has them."""
    kind, _, size = found["type"].rstrip(")").partition("(")
    first, _, second = size.partition(",")
    length = -1 if first == "max" else int(first) * (2 if kind.startswith("n") else 1) if kind.endswith(("char", "binary")) else 8
    precision = int(first) if kind == "decimal" else 0
    scale = int(second) if kind == "decimal" else int(first) if first.isdigit() and not kind.endswith(("char", "binary")) else 0
    collation = found["collation"] or ("SQL_Latin1_General_CP1_CI_AS" if kind.endswith("char") else None)
    return found["name"], kind, length, precision, scale, collation, int(found["null"] != "NOT NULL")


# --- values, which SQLite gives back as they were


def stored(value: Any) -> Any:
    for kind, sign, write, _ in _TYPES:
        if type(value) is kind:
            return f"\0\0{sign}{write(value)}"
    return value


def restored(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("\0\0"):
        return value
    return next(read(value[3:]) for _, sign, _, read in _TYPES if value[2] == sign)


_TYPES: Sequence[tuple[type, str, Any, Any]] = (
    (bool, "b", int, lambda text: text == "1"),
    (Decimal, "n", lambda value: format(value, "f"), Decimal),
    (dt.datetime, "t", dt.datetime.isoformat, dt.datetime.fromisoformat),
    (dt.date, "d", dt.date.isoformat, dt.date.fromisoformat),
    (dt.time, "h", dt.time.isoformat, dt.time.fromisoformat),
)
