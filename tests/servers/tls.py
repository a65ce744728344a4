"""A server that speaks TLS and nothing else, whose certificate is signed by an authority that nobody knows."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.certificates import certify

MYSQL_GREETING = (
    b"\x0a" + b"8.0.36\0" + b"\1\0\0\0" + b"12345678\0" + b"\xff\xff\x21\2\0\xff\xdf\x15" + bytes(10) + b"123456789012\0"
) + b"mysql_native_password\0"


@contextmanager
def unknown(directory: Path, *, greeting: bytes = b"", asked_bytes: int = 0) -> Iterator[int]:
    """Its port. Before TLS, it sends `greeting`, and reads what the client says to it."""
    certify(directory / "unknown.pem", directory / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context, greeting, asked_bytes), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)  # else who waits for a connection keeps the port
        thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext, greeting: bytes, asked_bytes: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(greeting)
                client.recv(asked_bytes, socket.MSG_WAITALL)
                with context.wrap_socket(client, server_side=True) as secured:
                    secured.recv(1)
