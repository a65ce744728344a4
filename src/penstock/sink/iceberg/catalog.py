"""`CatalogAddress`: the catalog that keeps a table, a SQL database or a server of Iceberg's REST API.

An error of such a server does not prove that a commit failed: it may have landed although the server, a proxy or a cut connection
raised one. So whoever commits reads the marker again after every error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.event import listen

from penstock.support.private_files import create_durably

_SQLITE: Final = "sqlite:///"

# What was staged for a batch is removed after its commit, so a COMMIT is answered only once it outlives a power cut.
_DURABLE_COMMITS: Final = {"sqlite": "PRAGMA synchronous = EXTRA", "postgresql": "SET synchronous_commit TO on"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAddress:
    """A catalog's `url`: `sqlite:////path`, `postgresql://…`, or `https://…` of a REST server, which may need `options`.

    `name` is the catalog's name in a SQL database.
    """

    url: str = field(repr=False)
    name: str = "default"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self, io: Mapping[str, str]) -> Catalog:
        """Return a client, which reads and writes metadata by the properties `io`, and must be closed. Raises as the library."""
        if self.url.startswith(("https://", "http://")):
            return RestCatalog(self.name, uri=self.url, **{**self.options, **io})
        scheme, _, rest = self.url.partition("://")
        catalog = SqlCatalog(self.name, uri=self.url if scheme == "sqlite" else f"postgresql+psycopg://{rest}", **io)
        listen(catalog.engine, "connect", partial(_make_commits_durable, statement=_DURABLE_COMMITS[catalog.engine.dialect.name]))
        catalog.engine.dispose()  # its first connections came before the listener
        return catalog

    @property
    def is_missing(self) -> bool:
        """Whether the catalog is a file that does not exist: opening it would create it."""
        return self._file is not None and not self._file.exists()

    def make_directory(self) -> None:
        """Make the directory of a catalog that is a file, durably."""
        if self._file is not None:
            create_durably(self._file.parent)

    @property
    def _file(self) -> Path | None:
        found = self.url.removeprefix(_SQLITE)
        return Path(found) if found != self.url else None


def _make_commits_durable(connection: Any, _: object, *, statement: str) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()
