"""A PyMySQL connection by a URL: it streams rows both ways, and never sends the server a file of this machine."""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pymysql
from pymysql.constants import CLIENT, COMMAND, CR, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import encoders
from pymysql.cursors import SSCursor
from pymysql.protocol import OKPacketWrapper

from penstock.sql.mysql.server import Server
from penstock.sql.url import TLS_PARAMETERS, ServerAddress, UrlForm, tls_of

CHARSET = "utf8mb4"
_FETCHED_ROWS = 20_000
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""Socket options that bound the wait for a server that is gone, where the operating system has them."""
_INTEGERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.YEAR)
_VALUES = {
    **encoders,
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), Decimal),
}
"""Numbers become Python's. Dates and times stay texts: Python's types have a narrower range, and PyMySQL gives None beyond it."""
_SENT_BYTES = 1 << 18
"""Bytes of data in one packet, if the server accepts so many."""

_WITHOUT_TLS = ("disabled", "preferred")
"""Modes without a TLS context of ours; with `preferred` the client tries TLS by itself."""
_FORM = UrlForm(
    what="MySQL or MariaDB",
    schemes=("mysql", "mariadb"),
    host="localhost",
    port=3306,
    parameters=("connect_timeout", *TLS_PARAMETERS, "unix_socket"),
    connect_timeout_s=10.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Address of a database, and credentials. `ssl`: the client's arguments for TLS; if empty, it tries TLS by itself."""

    unix_socket: str | None
    ssl: dict[str, Any] = field(repr=False)

    @property
    def place(self) -> str:
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"


def address_of(url: str) -> Address:
    """Return the parts of `url`. Raises Usage."""
    parts, parameters = _FORM.parts_of(url)
    return Address(**parts, unix_socket=parameters.get("unix_socket"), ssl=_ssl(parameters))


def _ssl(parameters: dict[str, str]) -> dict[str, Any]:
    mode, context = tls_of(parameters, modes_without=_WITHOUT_TLS)
    if context is None:
        return {"ssl_disabled": True} if mode == "disabled" else {}
    return {"ssl": context}


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """The server's answer to LOAD DATA; the attributes are named like those of a cursor."""

    rowcount: int
    warning_count: int


class Connection:
    """A session that stays open until an error or `close`. Raises PyMySQL's errors. Its opener sets `variables` and `server`."""

    variables: Mapping[str, str]
    server: Server

    def __init__(self, address: Address, *, application: str) -> None:
        self._client = pymysql.connections.Connection(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),  # type: ignore[arg-type, unused-ignore] # PyMySQL encodes a str as latin1
            database=address.database,
            unix_socket=address.unix_socket,
            connect_timeout=address.connect_timeout_s,  # type: ignore[arg-type, unused-ignore]
            read_timeout=address.connect_timeout_s,  # type: ignore[arg-type, unused-ignore]
            write_timeout=address.connect_timeout_s,  # type: ignore[arg-type, unused-ignore]
            charset=CHARSET,
            conv=_VALUES,
            autocommit=True,
            client_flag=CLIENT.FOUND_ROWS,
            local_infile=True,
            program_name=application,
            defer_connect=True,
            **address.ssl,
        )
        self._client._local_infile = False
        if address.unix_socket:
            self._client.connect()
        else:
            self._client.connect(_socket(address))
        self._client._read_timeout = self._client._write_timeout = None  # these bound the login; a statement may take longer

    def execute(self, statement: "str | bytes", values: "Mapping[str, Any] | Sequence[Any] | None" = None) -> Any:
        """Run a statement and return a cursor that holds the answer."""
        cursor = self._client.cursor()
        cursor.execute(statement, values)
        return cursor

    def size_of(self, statement: str, values: Sequence[Any]) -> int:
        """Return the bytes of a statement as it is sent."""
        return len(self._client.cursor().mogrify(statement, values).encode())

    def stream(self, statement: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a query, some thousands at a time; nothing else can run on the connection meanwhile."""
        with closing(self._client.cursor(SSCursor)) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(_FETCHED_ROWS):
                yield rows

    def load(self, statement: str, chunks: "Iterable[bytes | memoryview]", *, max_packet: int) -> LoadAnswer:
        """Run LOAD DATA LOCAL INFILE with `chunks` as the file `{file}`: the server loads while the next chunk is made.

        If making a chunk fails, the caller must close the session, which rolls back what it loaded. A server may ask for any file
        of this machine in answer to any statement: here it gets these chunks whatever it asks for, and otherwise nothing.
        """
        client = self._client
        client._execute_command(COMMAND.COM_QUERY, statement.format(file="'rows'"))
        if not client._read_packet().is_load_local_packet():
            raise pymysql.err.InternalError(CR.CR_COMMANDS_OUT_OF_SYNC, "the server did not ask for the rows to load")
        for chunk in chunks:
            self._send(memoryview(chunk), min(_SENT_BYTES, max_packet // 2))
        client.write_packet(b"")
        answer = OKPacketWrapper(client._read_packet())
        client.server_status = answer.server_status
        return LoadAnswer(answer.affected_rows, answer.warning_count)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was open after the last statement, by the server's answer."""
        return bool(self._client.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def is_alive(self) -> bool:
        """Return whether the server still answers."""
        try:
            self._client.ping(reconnect=False)
        except pymysql.err.Error:
            return False
        return True

    def close(self) -> None:
        """End the session, which rolls back what is open. Errors are ignored: the session is over either way."""
        with suppress(pymysql.err.Error, OSError):
            self._client.close()

    def _send(self, data: memoryview, packet_bytes: int) -> None:
        for start in range(0, len(data), packet_bytes):
            self._client.write_packet(data[start : start + packet_bytes])


def _socket(address: Address) -> socket.socket:
    """Return a connected socket that notices within a minute that the server is gone. Raises pymysql.err.OperationalError."""
    try:
        made = socket.create_connection((address.host, address.port), address.connect_timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError as cause:
        raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, str(cause)) from cause
    return made
