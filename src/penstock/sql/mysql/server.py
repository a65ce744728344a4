"""Properties of a MySQL or MariaDB server, and the check that it keeps what it acknowledges."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import GuaranteeTooWeak, Refused

_UNFLUSHED = frozenset({"nosync", "littlesync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Properties of a server. `loads`: it takes LOAD DATA LOCAL. `max_packet`: its longest statement, and value, in bytes."""

    is_mariadb: bool
    loads: bool
    max_packet: int

    @property
    def max_insert_bytes(self) -> int | None:
        """The longest INSERT of one row, in bytes; None if rows are not sent as statements."""
        return None if self.loads else self.max_packet

    @property
    def exact_collation(self) -> str:
        """The collation in which no two texts are equal: others ignore case, or trailing blanks."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"


def server_of(variables: Mapping[str, str]) -> Server:
    """Build the server's properties from its variables."""
    return Server(
        is_mariadb="mariadb" in variables["version"].lower(),
        loads=variables.get("local_infile") == "ON",
        max_packet=int(variables["max_allowed_packet"]),
    )


def require_durable(variables: Mapping[str, str], place: str) -> None:
    """Raise Refused for a server that cannot be written, GuaranteeTooWeak for one that could lose what it acknowledged."""
    locked = [name for name in ("read_only", "innodb_read_only") if variables.get(name, "OFF") != "OFF"]
    if locked:
        raise Refused(
            f"{place} has {locked[0]} = {variables[locked[0]]}, as replicas have, and nothing can be written to it.",
            remedy="Name the primary server in `url`.",
        )
    _require_redo_log(variables, place)
    _require_variable(variables, place, "innodb_flush_log_at_trx_commit", ("1", "3"), "a crash could lose what it committed")
    if variables.get("log_bin") != "ON":
        return
    _require_variable(variables, place, "sync_binlog", ("1",), "a crash could lose what it committed")
    if variables.get("binlog_format") == "STATEMENT":
        raise Refused(
            f"{place} has binlog_format = STATEMENT, with which it refuses transactions that read what is committed.",
            remedy="Set binlog_format = ROW or MIXED.",
        )


def _require_redo_log(variables: Mapping[str, str], place: str) -> None:
    """Raise GuaranteeTooWeak if the redo log is off, as MySQL allows, or never flushed, as both servers allow for tests."""
    if variables.get("Innodb_redo_log_enabled", "ON") != "ON":
        raise GuaranteeTooWeak(
            f"{place} runs with its redo log switched off, so a crash could lose what it committed, or all of it.",
            remedy="ALTER INSTANCE ENABLE INNODB REDO_LOG.",
        )
    method = variables.get("innodb_flush_method", "fsync")
    if method.lower() in _UNFLUSHED:
        raise GuaranteeTooWeak(
            f"{place} runs with innodb_flush_method = {method}, so a power cut could lose what it committed.",
            remedy="Take innodb_flush_method out of the server's configuration, and start it again.",
        )


def _require_variable(variables: Mapping[str, str], place: str, name: str, good: tuple[str, ...], risk: str) -> None:
    found = variables.get(name, good[0])
    if found not in good:
        raise GuaranteeTooWeak(f"{place} runs with {name} = {found}, so {risk}.", remedy=f"SET GLOBAL {name} = {good[0]}.")
