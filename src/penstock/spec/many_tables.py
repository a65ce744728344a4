"""Settings of sinks that fill many tables, which the rows name: `table: "{region}_orders"`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from penstock.core.table_names import TableNames, is_template
from penstock.spec.complaint import complaint_error, described
from penstock.spec.selection import TakesRows
from penstock.spec.settings import Settings

Unrouted: TypeAlias = Literal["fail", "drop", "quarantine"]

MOST_TABLES: Final = 1000
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")
_TAIL = re.compile(r"[^./]*\Z")
"""The last part of a table's name or path."""


def _tables(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return {"names": tuple(value)}
    return {"names": (value,)} if isinstance(value, str) else value


class Tables(Settings):
    """Which tables there may be."""

    names: tuple[str, ...] = Field(default=(), description="The names of all tables that there may be.")
    pattern: str | None = Field(
        default=None,
        min_length=1,
        description="A regular expression that the whole name of each table matches; instead of `names`.",
    )
    at_most: int = Field(
        default=100, ge=1, le=MOST_TABLES, description="How many tables there may be by `pattern`; one more fails the batch."
    )

    @model_validator(mode="after")
    def _says_it_in_one_way(self) -> Self:
        if bool(self.names) == (self.pattern is not None):
            found = "has both names and pattern" if self.names else "has neither names nor a pattern"
            raise complaint_error(found, remedy='Write tables: [eu_orders, us_orders], or tables: {pattern: "[a-z]+_orders"}.')
        if len(self.names) > MOST_TABLES:
            raise complaint_error(
                f"lists {len(self.names)} tables, and {MOST_TABLES} are possible", remedy="Use several sinks.", at=("names",)
            )
        return self

    @model_validator(mode="after")
    def _pattern_compiles(self) -> Self:
        try:
            re.compile(self.pattern or "")
        except re.error as wrong:
            raise complaint_error(
                f"is no regular expression: {wrong}", remedy='Write it like "[a-z]{2}_orders".', at=("pattern",)
            ) from None
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen = dict[str, str]()
        for name in self.names:
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                raise complaint_error(
                    f"lists {other} and {name}, which are one table where case does not count",
                    remedy="Keep one of them.",
                )
        return self


class FillsManyTables(TakesRows):
    """Base of the settings of sinks that can fill many tables."""

    template_key: ClassVar[str] = "table"
    """The key whose value names the table."""
    longest_name: ClassVar[int] = 63
    name_letters: ClassVar[str] = "A-Za-z0-9_-"

    tables: Annotated[Tables, BeforeValidator(_tables, json_schema_input_type=list[str] | Tables)] | None = Field(
        default=None,
        description="Where the table's name has columns in it, as `{region}_orders`: the tables that there may be, as a list, or "
        'by a pattern: `{pattern: "[a-z]+_orders", at_most: 100}`. A table is created before the first batch with rows for it.',
    )
    unrouted: Unrouted = Field(
        default="fail",
        description="What happens to a row that may be in none of `tables`: `fail` the batch, `drop` the row, or put it aside "
        "(`quarantine`).",
    )

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys with those about many tables after the one that names the table."""
        own = ("tables", "unrouted")
        keys = [key for key in super().valid_keys() if key not in own]
        at = keys.index(cls.template_key) + 1
        return (*keys[:at], *own, *keys[at:])

    @property
    def puts_aside(self) -> str | None:
        return "unrouted" if self.unrouted == "quarantine" else super().puts_aside

    @property
    def template_prefix(self) -> str:
        """What precedes the part of the table's name or path that has columns in it."""
        text = self._template_text
        return text[: len(text) - len(self._template)]

    @property
    def table_names(self) -> TableNames | None:
        """The names of the tables, None where there is one table."""
        if self.tables is None:
            return None
        names = self.tables.names
        return TableNames(
            template=self._template,
            listed=names,
            pattern=self.tables.pattern,
            most=len(names) or self.tables.at_most,
            longest=self.longest_name,
            letters=self.name_letters,
        )

    @property
    def _template_text(self) -> str:
        return str(getattr(self, self.template_key))

    @property
    def _template(self) -> str:
        found = _TAIL.search(self._template_text)
        assert found is not None, "the end of a text"
        return found[0]

    @model_validator(mode="after")
    def _tables_fit_template(self) -> Self:
        at = (self.template_key,)
        if self.tables is None:
            self._require_one_table()
            return self
        if not is_template(self._template) or is_template(self.template_prefix):
            raise complaint_error(
                f"should have columns in its last part, since `tables` is given, found {described(self._template_text)}",
                remedy='Write it like "{region}_orders", or leave tables out.',
                at=at,
            )
        names = self.table_names
        assert names is not None
        if not _LITERAL.fullmatch(names.literal) or not all(names.columns):
            raise complaint_error(
                f"should have letters, digits, _ and - besides columns in braces, found {described(self._template)}",
                remedy='Write it like "{region}_orders".',
                at=at,
            )
        self._require_names_fit(names)
        self._require_write_fits()
        return self

    def _require_one_table(self) -> None:
        if is_template(self._template_text):
            raise complaint_error(
                f"is missing, but {self.template_key} has columns in it ({self._template_text})",
                remedy='Write tables: [eu_orders, us_orders], or tables: {pattern: "[a-z]+_orders"}.',
                at=("tables",),
            )
        if self.unrouted != "fail":
            raise complaint_error(
                "is given, but there is one table, which takes all rows", remedy="Leave it out.", at=("unrouted",)
            )

    def _require_names_fit(self, names: TableNames) -> None:
        for name in names.listed:
            refusal = names.refusal(name)
            if refusal is not None:
                raise complaint_error(
                    f"has {described(name)}, which {self._template} cannot be: it {refusal}",
                    remedy="Correct the name, or the template.",
                    at=("tables",),
                )

    def _require_write_fits(self) -> None:
        write = getattr(self, "write", "append")
        if write == "replace":
            raise complaint_error(
                "is replace, but there are many tables: one that a batch has no rows for would keep its old content",
                remedy="Use write: upsert with a key, or a sink for each table.",
                at=("write",),
            )
        if write == "merge":
            raise complaint_error(
                "is merge, but there are many tables, and the SQL of merge is about one",
                remedy="Use write: append, upsert or insert_if_absent, or a sink for each table.",
                at=("write",),
            )

    def may_fill_table_of(self, other: "FillsManyTables") -> bool:
        """Return whether one of the two can fill a table of the other, as far as names show. Both are valid."""
        mine, its = self.table_names, other.table_names
        if (mine is None and its is None) or type(self) is not type(other) or self.tables_lie_in != other.tables_lie_in:
            return False
        listed = (
            names.listed if names is not None else (settings._template,) for settings, names in ((self, mine), (other, its))
        )
        own, others = listed
        if own and others:
            return not {name.lower() for name in own}.isdisjoint(name.lower() for name in others)
        if mine is not None and its is not None and not own and not others:
            return mine.template.lower() == its.template.lower()
        names, candidates = (mine, others) if mine is not None and not own else (its, own)
        return names is not None and any(names.refusal(name) is None for name in candidates)

    @property
    def tables_lie_in(self) -> tuple[object, ...]:
        """What the tables of two sinks have in common that have the same names: database or directory, and schema."""
        place = getattr(self, "catalog", None) or getattr(self, "url", "")
        return place, self.template_prefix.lower()


def require_one_table(given: Any, *, why: str) -> Any:
    """Return the settings as `given`. Raise what pydantic takes for an error if they ask for many tables."""
    if isinstance(given, Mapping):
        table = given.get("table")
        key = "tables" if "tables" in given else "table" if isinstance(table, str) and is_template(table) else None
        if key is not None:
            what = "is given" if key == "tables" else f"has columns in it ({table})"
            raise complaint_error(
                f"{what}, but {why}", remedy="Give each table a sink of its own, with `where` for its rows.", at=(key,)
            )
    return given


def one_of(settings: FillsManyTables, table: str) -> Mapping[str, str]:
    """Return the setting that names one of many tables."""
    return {settings.template_key: f"{settings.template_prefix}{table}"}
