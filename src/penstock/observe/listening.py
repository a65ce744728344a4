"""Where an endpoint listens, and who may ask it."""

from dataclasses import dataclass, field
from pathlib import Path


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
