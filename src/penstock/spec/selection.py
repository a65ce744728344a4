"""Settings by which a sink takes a part of the rows: some of them, and some of their columns or others made of these."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from penstock.core.update_condition import parse_condition
from penstock.errors import Usage
from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns, as_tuple
from penstock.spec.settings import Settings
from penstock.spec.sql import SQL
from penstock.support.secret import shown_text, values_in

OnInvalid = Literal["fail", "quarantine"]
Expressions = Annotated[tuple[SQL, ...], BeforeValidator(as_tuple)]
"""Names of columns, or expressions."""


class TakesRows(Settings):
    """Base of the settings of all sinks."""

    where: SQL | None = Field(
        default=None, description="A Spark SQL predicate: the sink takes the rows for which it is true. Without it, all of them."
    )
    select: Expressions = Field(
        default=(),
        description="Names of columns, or Spark SQL expressions such as `amount * 2 AS twice`: what the sink writes of each row. "
        "Without it, all columns.",
    )
    exclude: Columns = Field(default=(), description="Names of columns that the sink does not write.")

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys, those of the kind of sink before those that all sinks share."""
        own = TakesRows.model_fields
        return (*(key for key in super().valid_keys() if key not in own), *own)

    @property
    def deletes(self) -> str | None:
        """The predicate of the rows that delete, None if none do."""
        return None

    @property
    def puts_aside(self) -> str | None:
        """The setting by which rows that the sink cannot take go into the quarantine, None if they fail the batch."""
        return None

    @property
    def takes_all(self) -> bool:
        """Whether the sink takes all rows as they are."""
        return not (self.where or self.select or self.exclude or self.deletes)

    def taking(self) -> Mapping[str, str]:
        """Say for `explain` what the sink takes, without secrets; nothing where that is all."""
        parts = {
            "rows where": shown_text(self.where or ""),
            "columns": ", ".join(map(shown_text, self.select)),
            "all columns but": ", ".join(self.exclude),
            "deletes where": shown_text(self.deletes or ""),
        }
        taken = "; ".join(f"{what} {which}" for what, which in parts.items() if which)
        return {"take": taken} if taken else {}

    @model_validator(mode="after")
    def _selects_in_one_way(self) -> Self:
        if self.select and self.exclude:
            raise complaint_error(
                "is given, and select as well", remedy="Leave it out: what select does not name is not written.", at=("exclude",)
            )
        return self


class RefusesRows(TakesRows):
    """Base of the settings of sinks into tables, which cannot hold every value."""

    invalid_rows: OnInvalid = Field(
        default="fail",
        description="What happens to a row that the table cannot hold, such as by a text that is too long or a NULL in a key: "
        "`fail` the batch, or put the row aside (`quarantine`).",
    )

    @model_validator(mode="after")
    def _each_row_comes_once(self) -> Self:
        if self.puts_aside is not None and getattr(self, "write", None) == "replace":
            raise complaint_error(
                "is quarantine, but with write: replace every batch is the whole result: such a row would come again with each",
                remedy="Write fail, or filter such rows in the transform.",
                at=("invalid_rows",),
            )
        return self

    @property
    def puts_aside(self) -> str | None:
        return "invalid_rows" if self.invalid_rows == "quarantine" else None


class DeletesRows(TakesRows):
    """Base of the settings of sinks in which a row can delete what is there under its key."""

    delete_when: SQL | None = Field(
        default=None,
        description="With `write: upsert`: a Spark SQL predicate. A row for which it is true deletes the row with its key; "
        "one that is not there is no error. It may use columns that are not written.",
    )

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys with `delete_when` after `key`."""
        keys = [key for key in super().valid_keys() if key != "delete_when"]
        at = keys.index("key") + 1
        return (*keys[:at], "delete_when", *keys[at:])

    @property
    def deletes(self) -> str | None:
        return self.delete_when


class UpsertsOrDeletes(DeletesRows):
    """Base of the settings of sinks into tables in which a row of `write: upsert` can delete the one with its key."""

    if TYPE_CHECKING:
        write: str
        key: Columns

    @model_validator(mode="after")
    def _deletes_by_key(self) -> Self:
        if self.delete_when is not None and self.write != "upsert":
            raise complaint_error(
                f"is given, but write is {self.write}",
                remedy="Set write: upsert, with a key, or leave it out.",
                at=("delete_when",),
            )
        return self


class UpsertsNewest(UpsertsOrDeletes):
    """Base of the settings of sinks into tables in which `write: upsert` can leave out rows that are older than what is there."""

    sequence_by: str | None = Field(
        default=None,
        min_length=1,
        description="With `write: upsert`: the column that says which of two rows with one key is newer, by its greater value. "
        "A row never replaces one that is newer.",
    )

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys with `sequence_by` after `delete_when`."""
        keys = [key for key in super().valid_keys() if key != "sequence_by"]
        at = keys.index("delete_when") + 1
        return (*keys[:at], "sequence_by", *keys[at:])

    @property
    def keeps_history(self) -> bool:
        """Whether every version of a row stays, so that a deletion has a time, too."""
        return False

    @model_validator(mode="after")
    def _sequence_fits_write(self) -> Self:
        if self.sequence_by is None:
            return self
        if self.write != "upsert":
            raise complaint_error(
                f"is given, but write is {self.write}",
                remedy="Set write: upsert, with a key, or leave it out.",
                at=("sequence_by",),
            )
        if self.delete_when is not None and not self.keeps_history:
            raise complaint_error(
                "is given, and delete_when as well: a row that is gone has no value, and an older change would bring it back",
                remedy="Leave delete_when out: keep a deleted row, with a column that says so, and let readers filter such rows.",
                at=("sequence_by",),
            )
        if self.sequence_by in self.key:
            raise complaint_error(
                f"names {self.sequence_by!r}, a column of the key, which is the same in all rows that are compared",
                remedy="Name the column that grows with each change of a row.",
                at=("sequence_by",),
            )
        return self


class Compares(UpsertsNewest):
    """Base of the settings of sinks into tables whose rows are compared with those of a batch before it is written."""

    update_when: str | None = Field(
        default=None,
        min_length=1,
        description="With `write: upsert`: a predicate over `old.column` and `new.column`. A row of the table is replaced only "
        "where it is true; rows whose key is not there are added all the same.",
    )
    history: bool = Field(
        default=False,
        description="With `write: upsert`: keep every version of a row, with `valid_from`, `valid_to` and `is_current` (slowly "
        "changing dimension, type 2). A change closes the current version and adds a new one.",
    )

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys with `update_when` and `history` after `sequence_by`."""
        keys = [key for key in super().valid_keys() if key not in {"update_when", "history"}]
        at = keys.index("sequence_by") + 1
        return (*keys[:at], "update_when", "history", *keys[at:])

    @property
    def keeps_history(self) -> bool:
        return self.history

    @model_validator(mode="after")
    def _compares_by_key(self) -> Self:
        key = "history" if self.history else "update_when"
        if (self.history or self.update_when is not None) and self.write != "upsert":
            raise complaint_error(
                f"is given, but write is {self.write}", remedy="Set write: upsert, with a key, or leave it out.", at=(key,)
            )
        if self.history and self.update_when is not None:
            raise complaint_error(
                "is given, and history as well, which replaces no row", remedy="Leave it out.", at=("update_when",)
            )
        if self.history and getattr(self, "schema_changes", None) == "widen":
            raise complaint_error(
                "is widen, and history is given: versions of before stay as they were counted",
                remedy="Write add, or give the sink another table when a type is to become wider.",
                at=("schema_changes",),
            )
        return self

    @model_validator(mode="after")
    def _condition_is_understood(self) -> Self:
        if self.update_when is None:
            return self
        if values_in(self.update_when):
            raise complaint_error(
                "holds a value of the environment, which every decision would record",
                remedy="Compare a column of the rows, which the transform computes.",
                at=("update_when",),
            )
        try:
            parse_condition(self.update_when)
        except Usage as wrong:
            message = wrong.message.removeprefix("update_when ").rstrip(".")
            raise complaint_error(message, remedy=wrong.remedy, at=("update_when",)) from None
        return self


def require_no_comparison(given: Any, *, why: str) -> Any:
    """Return the settings as `given`. Raise what Pydantic takes for an error if a key of `Compares` is among them."""
    for key in ("history", "update_when") if isinstance(given, Mapping) else ():
        if key in given:
            raise complaint_error(
                f"is given, but {why}",
                remedy="Leave it out, or write into PostgreSQL, MySQL, SQLite, DuckDB, Delta or Iceberg.",
                at=(key,),
            )
    return given


class TellsBatches(UpsertsOrDeletes):
    """Base of the settings of sinks into tables whose rows can say of which batch they are."""

    batch_column: str | None = Field(
        default=None,
        min_length=1,
        description="With `write: append`: a column of the table, of 64-bit integers, into which Penstock writes the ledger's "
        "position of the batch, so that `penstock rewind` can take it back.",
    )

    @model_validator(mode="after")
    def _tells_appended_batches(self) -> Self:
        if self.batch_column is not None and self.write != "append":
            raise complaint_error(
                f"is given, but write is {self.write}",
                remedy="Leave it out: a row that was replaced or skipped cannot be brought back.",
                at=("batch_column",),
            )
        return self
