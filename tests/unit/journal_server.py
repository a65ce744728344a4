"""A read endpoint of a receiver in a thread of this process, which can go away and come back."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from typing_extensions import Self

from penstock.journal.access import LocalJournal
from penstock.journal.storage import LocalStorage
from penstock.receive.read_endpoint import ReadEndpoint
from penstock.spec.receive import ReadListener

TOKEN = "t0ken-of-the-reader"


class JournalServer:
    """Serves the journal in `home`; `port` stays the same."""

    def __init__(self, home: Path, *, token: str | None = TOKEN, **more: Any) -> None:
        self._home, self._more, self.port = home, {"token": token, **more}, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._endpoint: ReadEndpoint | None = None

    @property
    def url(self) -> str:
        return f"{'https' if 'tls' in self._more else 'http'}://localhost:{self.port}"

    def start(self) -> None:
        settings = ReadListener(listen=f"127.0.0.1:{self.port}", **self._more)
        self._endpoint = ReadEndpoint(settings, LocalJournal(LocalStorage(), self._home, now_us=lambda: 1))
        self.port = int(self._done(self._endpoint.start()).rpartition(":")[2])

    def stop(self) -> None:
        if self._endpoint is not None:
            self._done(self._endpoint.stop())
            self._endpoint = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _done(self, work: "Coroutine[Any, Any, Any]") -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
