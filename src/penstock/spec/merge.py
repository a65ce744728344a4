"""Settings of `merge`, the user's own SQL over a batch's rows."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from penstock.errors import Usage
from penstock.spec.complaint import complaint_error
from penstock.spec.place import FilePath
from penstock.spec.settings import ONE_KEY, Settings

if TYPE_CHECKING:
    from os import PathLike


class Merge(Settings):
    """SQL that is run over the staged rows, in the transaction that publishes them."""

    model_config: ClassVar[ConfigDict] = ONE_KEY

    sql: str | None = Field(
        default=None,
        min_length=1,
        description="Statements of the database's own SQL, with `;` between them. `{staged}` stands for the table that holds the "
        "batch's rows, `{table}` for the sink's.",
    )
    file: FilePath | None = Field(default=None, description="A file with such SQL, relative to the pipeline file.")

    if TYPE_CHECKING:

        def __init__(self, *, sql: str | None = None, file: "str | PathLike[str] | None" = None) -> None: ...

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.sql is None) == (self.file is None):
            has = "has both sql and file" if self.sql else "has neither sql nor file"
            raise complaint_error(has, remedy="Keep exactly one of them.")
        return self

    def text(self) -> str:
        """Return the SQL. Raises Usage for a file that cannot be read."""
        if self.sql is not None:
            return self.sql
        try:
            return Path(str(self.file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise Usage(f"The SQL of `merge` cannot be read: {cause}.", remedy="Correct `merge.file`.") from cause
