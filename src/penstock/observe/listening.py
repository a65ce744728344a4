"""Where an endpoint listens, who may ask it, and the server that does."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from penstock.errors import DependencyMissing
from penstock.observe.page.watched import Watched
from penstock.support.extras import install_command

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where an endpoint listens, and who may ask. Port 0: one that is free. `token`: asked for before anything but a probe."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def listen(listening: Listening, pipelines: Sequence[Watched]) -> "WSGIServer":
    """Return the server of `observe.endpoint`, which listens already. Raises DependencyMissing, Failed, Usage."""
    try:
        from penstock.observe.endpoint import server_of  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise DependencyMissing(
            "Metrics are served with the client library of Prometheus, which is not installed.",
            remedy=f"Install it: {install_command('metrics')}",
        ) from missing
    return server_of(listening, pipelines)


@contextmanager
def answering(listening: Listening, pipelines: Sequence[Watched]) -> Iterator[str]:
    """Answer in a thread of its own while the body runs. Yields the URL. Raises what `listen` raises."""
    with listen(listening, pipelines) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,), name="penstock-metrics", daemon=True)
        thread.start()
        try:
            yield replace(listening, port=server.server_port).url
        finally:
            server.shutdown()
            thread.join()
