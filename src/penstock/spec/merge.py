"""Settings of `write: merge`, by which SQL of the user's own writes the rows of a batch."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_core import PydanticCustomError

from penstock.errors import Usage
from penstock.spec.complaint import complaint_error
from penstock.spec.place import FilePath
from penstock.spec.settings import OneKey
from penstock.spec.sql import SQL


class Merge(OneKey):
    """SQL that is run over the staged rows, in the transaction that publishes them."""

    sql: SQL | None = Field(
        default=None,
        description="Statements of the database's own SQL, with `;` between them. `{staged}` stands for the table that holds the "
        "batch's rows, `{table}` for the sink's.",
    )
    file: FilePath | None = Field(default=None, description="A file with such SQL, relative to the pipeline file.")

    if TYPE_CHECKING:

        def __init__(self, *, sql: str | None = None, file: str | PathLike[str] | None = None) -> None: ...

    def _not_one(self, given: Sequence[str]) -> PydanticCustomError:
        return complaint_error(
            "has both sql and file" if given else "has neither sql nor file", remedy="Keep exactly one of them."
        )

    def text(self) -> str:
        """Return the SQL. Raises Usage for a file that cannot be read."""
        if self.sql is not None:
            return self.sql
        try:
            return Path(str(self.file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise Usage(f"The SQL of `merge` cannot be read: {cause}.", remedy="Correct `merge.file`.") from cause
