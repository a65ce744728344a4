"""One connection of PyMySQL: statements, streams of rows to and fro, and never a file of this machine."""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pymysql
from pymysql.constants import CLIENT, COMMAND, CR, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import encoders
from pymysql.cursors import SSCursor
from pymysql.protocol import OKPacketWrapper

from penstock.sql.mysql.address import Address

CHARSET = "utf8mb4"
_FETCHED_ROWS = 20_000
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""How long a server that is gone is waited for, where the system can be told."""
_INTEGERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.YEAR)
_VALUES = {
    **encoders,
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), Decimal),
}
"""Numbers become Python's. Dates and times stay texts: Python's own are narrower, and PyMySQL gives None for what they lack."""
_SENT_BYTES = 1 << 18
"""Of data in one packet, where the server takes so much."""


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """What the server says of rows that it loaded; named as a cursor names it."""

    rowcount: int
    warning_count: int


class Connection:
    """A session that is open until an error or `close`. Errors are PyMySQL's own."""

    def __init__(self, address: Address, *, application: str) -> None:
        self._client = pymysql.connections.Connection(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),  # type: ignore[arg-type, unused-ignore] # it would take latin1 for text
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
        self._client._read_timeout = self._client._write_timeout = None  # to let us in takes no longer, a statement may

    def execute(self, statement: "str | bytes", values: "Mapping[str, Any] | Sequence[Any] | None" = None) -> Any:
        """A cursor that holds the answer."""
        cursor = self._client.cursor()
        cursor.execute(statement, values)
        return cursor

    def size_of(self, statement: str, values: Sequence[Any]) -> int:
        """The bytes of a statement as it is sent."""
        return len(self._client.cursor().mogrify(statement, values).encode())

    def stream(self, statement: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The rows of a query, some thousands at a time; nothing else can run on the connection meanwhile."""
        with closing(self._client.cursor(SSCursor)) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(_FETCHED_ROWS):
                yield rows

    def load(self, statement: str, chunks: "Iterable[bytes | memoryview]", *, max_packet: int) -> LoadAnswer:
        """Run LOAD DATA LOCAL INFILE with `chunks` for the file `{file}`: the server loads while the next one is made.

        Where making one fails, close the session, which rolls back what it loaded. A server may ask for any file of this machine
        in answer to any statement: it gets these chunks, whatever it asks for, and else nothing.
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
        """Whether the server said so after the last statement."""
        return bool(self._client.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def is_alive(self) -> bool:
        """Whether the server still answers."""
        try:
            self._client.ping(reconnect=False)
        except pymysql.err.Error:
            return False
        return True

    def close(self) -> None:
        """End the session, which rolls back what is open; however it ends, it is over."""
        with suppress(pymysql.err.Error, OSError):
            self._client.close()

    def _send(self, data: memoryview, packet_bytes: int) -> None:
        for start in range(0, len(data), packet_bytes):
            self._client.write_packet(data[start : start + packet_bytes])


def _socket(address: Address) -> socket.socket:
    """A connection that notices within a minute that the server is gone. Raises pymysql.err.OperationalError."""
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
