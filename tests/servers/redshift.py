"""A PostgreSQL that stands in for Redshift: behind a proxy that speaks to Redshift's own driver, and refuses what Redshift lacks.

Both have one protocol and one ancestor. What this cannot show: how Redshift plans, what it takes for a conflict, and how it
answers.
"""

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers import cutting, postgres
from tests.servers.postgres import PostgresServer
from tests.servers.server import NotInstalledError

LACKING = {
    "ON CONFLICT": r"\bON\s+CONFLICT\b",
    "locks of single rows": r"\bFOR\s+(NO\s+KEY\s+)?(UPDATE|SHARE)\b",
    "RETURNING": r"\bRETURNING\b",
    "ON COMMIT": r"\bON\s+COMMIT\b",
    "indexes": r"\bINDEX\b",
    "keys that are kept": r"\b(PRIMARY\s+KEY|UNIQUE|REFERENCES|CHECK)\b",
    "savepoints": r"\bSAVEPOINT\b",
    "a TRUNCATE that does not commit": r"\bTRUNCATE\b",
    "COPY from a client": r"\bFROM\s+STDIN\b",
    "LATERAL": r"\bLATERAL\b",
    "FILTER": r"\bFILTER\s*\(",
    "DISTINCT ON": r"\bDISTINCT\s+ON\b",
    "types of PostgreSQL": r"\b(bytea|jsonb?|text|uuid|tinyint|bigserial|serial)\b",
    "arrays": r"\bARRAY\b",
    "lock_timeout": r"\block_timeout\b",
    "advisory locks": r"\bpg_advisory",
    "unlogged tables": r"\bUNLOGGED\b",
    "pg_temp": r"\bpg_temp\b",
}
"""What is refused, by what a statement holds outside of quotes. TEXT would be 256 characters."""

SHIM = """
CREATE TYPE varbyte;
CREATE FUNCTION varbyte_in(cstring) RETURNS varbyte LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
CREATE FUNCTION varbyte_out(varbyte) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
CREATE FUNCTION varbyte_size_in(cstring[]) RETURNS integer LANGUAGE internal IMMUTABLE STRICT AS 'varchartypmodin';
CREATE FUNCTION varbyte_size_out(integer) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'varchartypmodout';
CREATE TYPE varbyte (
    INPUT = varbyte_in, OUTPUT = varbyte_out, TYPMOD_IN = varbyte_size_in, TYPMOD_OUT = varbyte_size_out, LIKE = bytea
);
CREATE CAST (varbyte AS bytea) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (bytea AS varbyte) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE FUNCTION to_varbyte(text, text) RETURNS varbyte LANGUAGE sql IMMUTABLE STRICT AS 'SELECT decode($1, $2)::varbyte';
CREATE FUNCTION from_varbyte(varbyte, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS 'SELECT encode($1::bytea, $2)';
CREATE FUNCTION getdate() RETURNS timestamp LANGUAGE sql STABLE AS $$SELECT now() AT TIME ZONE 'UTC'$$;
CREATE FUNCTION "identity"(integer, integer, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE FUNCTION json_extract_array_element_text(varchar, integer) RETURNS varchar LANGUAGE sql IMMUTABLE AS
    'SELECT ($1::jsonb ->> $2)::varchar';
CREATE FUNCTION json_extract_path_text(varchar, varchar) RETURNS varchar LANGUAGE sql IMMUTABLE AS
    'SELECT ($1::jsonb ->> $2)::varchar';
"""
"""What Redshift has and PostgreSQL has not, of what the sink and its page use."""

_TEMPLATE = "with_shim"
_KNOWN = frozenset({b"user", b"database", b"client_encoding", b"application_name"})
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_READS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_WRITER = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"


class RedshiftServer:
    """One cluster. `refused`: what was asked for that Redshift lacks."""

    kind = "redshift"

    def __init__(self, behind: PostgresServer) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.refused: list[str] = []
        self._prepare_template()
        threading.Thread(target=self._accept, daemon=True).start()

    def start(self) -> None:
        """Also after a kill."""
        self._behind.start()

    def kill(self) -> None:
        """SIGKILL of all that is behind the proxy."""
        self._behind.kill()

    def close(self) -> None:
        self._listener.close()

    def database(self, name: str) -> str:
        """The URL of an empty database that belongs to the role."""
        self._behind.database(name, template=_TEMPLATE)
        return self.url(name)

    def _prepare_template(self) -> None:
        """Once: what `SHIM` makes takes longer to make than to copy, and most tests have a database of their own."""
        with self._behind.admin() as connection:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        with self._behind.admin(_TEMPLATE) as connection:
            connection.execute(SHIM)

    def url(self, database: str, *, port: int | None = None, password: str = postgres.QUOTED_PASSWORD) -> str:
        return f"redshift://{postgres.ROLE}:{password}@127.0.0.1:{port or self.port}/{database}?sslmode=disable"

    def direct(self, database: str) -> str:
        """Past the proxy, for other clients than the product's."""
        return self._behind.url(database)

    def admin(self, database: str = "postgres") -> Any:
        """A superuser's connection, for what only tests do."""
        return self._behind.admin(database)

    def cutting(self) -> "AbstractContextManager[cutting.Cutter]":
        """A network before it that is cut at a COMMIT, which the driver has parsed before it has it executed."""
        return cutting.before(self.port, [b"COMMIT\0"], parses_first=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client:
            greeting = _received(client, struct.unpack("!I", _received(client, 4))[0] - 4)
            with socket.create_connection(("127.0.0.1", self._behind.port)) as there:
                for end in (client, there):  # messages go one by one: each would wait for the last one's acknowledgement
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                there.sendall(_with_length(_known_parameters(greeting)))
                answers = threading.Thread(target=_answer, args=(there, client), daemon=True)
                answers.start()
                with suppress(OSError, EOFError):
                    self._ask(client, there)
                _shut(there, client)
                answers.join()

    def _ask(self, client: socket.socket, there: socket.socket) -> None:
        fresh = False
        while True:
            kind, body = _message(client)
            if kind == b"P":
                name, _, rest = body.partition(b"\0")
                statement, _, types = rest.partition(b"\0")
                lacking = self._lacking(statement.decode(), fresh=fresh)
                fresh = statement.decode() == _WRITER or (fresh and not _READS.match(statement.decode()))
                if lacking:
                    self.refused.append(f"{lacking}: {statement.decode()}")
                    body = b"\0".join([name, f'Redshift lacks "{lacking}"'.encode(), types])
                fresh = fresh and not statement.startswith(b"LOCK ")
            there.sendall(kind + _with_length(body))

    def _lacking(self, statement: str, *, fresh: bool) -> str:
        """What is wrong with it, empty for nothing. `fresh`: a transaction that writes has begun, and has not locked anything."""
        plain = _QUOTED.sub("''", statement)
        if fresh and _READS.match(plain):
            return "a view of the data that is newer than the lock"
        return next((what for what, sign in LACKING.items() if re.search(sign, plain, re.IGNORECASE)), "")


def _known_parameters(greeting: bytes) -> bytes:
    """Without those that PostgreSQL does not know."""
    version, parts = greeting[:4], greeting[4:].split(b"\0")
    known = [(name, value) for name, value in zip(parts[::2], parts[1::2], strict=False) if name in _KNOWN]
    return version + b"".join(name + b"\0" + value + b"\0" for name, value in known) + b"\0"


def _answer(there: socket.socket, client: socket.socket) -> None:
    """The server calls itself what Redshift does."""
    with suppress(OSError, EOFError):
        while True:
            kind, body = _message(there)
            if kind == b"S" and body.startswith(b"server_version\0"):
                body = b"server_version\x008.0.2\0"
            client.sendall(kind + _with_length(body))
    _shut(client, there)


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _received(source, 1)
    return kind, _received(source, struct.unpack("!I", _received(source, 4))[0] - 4)


def _received(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _with_length(body: bytes) -> bytes:
    return struct.pack("!I", len(body) + 4) + body


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def install() -> None:
    """What PostgreSQL needs."""
    postgres.install()


@contextmanager
def running(directory: Path) -> Iterator[RedshiftServer]:
    """A cluster that keeps its data below `directory`."""
    try:
        import redshift_connector  # noqa: F401
    except ImportError:
        raise NotInstalledError("redshift_connector is not there") from None
    with postgres.running(directory, asks_for="md5") as behind:  # as Redshift
        server = RedshiftServer(behind)
        try:
            yield server
        finally:
            server.close()
