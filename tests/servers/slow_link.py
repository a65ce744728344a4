"""A slow network: a TCP proxy that lets each connection pass so many bytes a second, each of them some time later."""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

_CHUNK_BYTES = 1 << 16


@contextmanager
def slow_link(target: int, *, at: int, bytes_a_second: int, latency_s: float) -> Iterator[None]:
    """Take connections at port `at` and hand them on to port `target`, each direction of each connection so slowly."""
    listener, opened = socket.create_server(("127.0.0.1", at)), deque[socket.socket]()

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", target))
                opened.extend((client, there))
                for source, sink in ((client, there), (there, client)):
                    threading.Thread(
                        target=_pass, args=(source, sink, bytes_a_second, latency_s), daemon=True, name="slow-link"
                    ).start()

    threading.Thread(target=accept, daemon=True, name="slow-link").start()
    try:
        yield
    finally:
        for one in (listener, *opened):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _pass(source: socket.socket, sink: socket.socket, bytes_a_second: int, latency_s: float) -> None:
    """Read no faster than the rate, which fills the sender's buffers, and let another thread send what is old enough."""
    waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    threading.Thread(target=_send, args=(waiting, sink), daemon=True, name="slow-link").start()
    free_s = time.monotonic()
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            free_s = max(free_s, time.monotonic()) + len(data) / bytes_a_second
            time.sleep(max(0.0, free_s - time.monotonic()))
            waiting.put((free_s + latency_s, data))
    waiting.put((0.0, b""))


def _send(waiting: "SimpleQueue[tuple[float, bytes]]", sink: socket.socket) -> None:
    with suppress(OSError):
        while (due := waiting.get())[1]:
            time.sleep(max(0.0, due[0] - time.monotonic()))
            sink.sendall(due[1])
        sink.shutdown(socket.SHUT_RDWR)
