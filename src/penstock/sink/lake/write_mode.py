"""The write modes of a table, and the counts that a commit records beside the marker.

Appended rows are found by their files. Where rows replace others, files tell nothing: then every commit also records how many
rows were ever decided, and how many of them the table shows, each with their digest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.model import Json, Publication, Totals
from penstock.core.update_condition import UpdateCondition, parse_condition
from penstock.errors import Usage
from penstock.sink.table.history import HISTORY, json_with_history, with_history
from penstock.sink.table.marker import NO_ROWS, minus
from penstock.sink.table.sequence import require_sequence
from penstock.sink.table.target import BY_KEY
from penstock.spark.schema import arrow_schema

APPEND, REPLACE, OVERWRITE_PARTITIONS = "append", "replace", "overwrite_partitions"
WRITES: Final = (APPEND, "upsert", "insert_if_absent", REPLACE, OVERWRITE_PARTITIONS, HISTORY)
"""The number of a `write` in the marker is its place here: new ones come last."""

_WORD: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMode:
    """A `write` of the settings, with the key that it needs. `deletes`: rows have the column of `core.deletes`.

    `sequence_by`: the column by whose values `upsert` takes the newest row of each key, whether it is there or in the batch.
    `update_when`: where the table has a row with the key, `upsert` replaces it only if this condition holds. With `history`,
    `key` is that of the rows, and `sequence_by` puts their versions in order. `keeps_rows`: the first batch is added to a table
    with rows of others, which are counted as shown from then on.
    """

    write: str = APPEND
    key: tuple[str, ...] = ()
    deletes: bool = False
    sequence_by: str | None = None
    update_when: UpdateCondition | None = None
    keeps_rows: bool = False

    @property
    def is_by_key(self) -> bool:
        return self.write in BY_KEY

    @property
    def keeps_history(self) -> bool:
        return self.write == HISTORY

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which rows of a batch are told apart."""
        return self.key

    @property
    def filled(self) -> tuple[str, ...]:
        """The columns in which no row of a batch has NULL."""
        return self.key if self.sequence_by is None else (*self.key, self.sequence_by)

    def table_schema(self, schema: str) -> str:
        """Return Spark's JSON of the table's columns for that of the rows. Raise Usage for names that are taken."""
        if not self.keeps_history or not schema:
            return schema
        with_history(arrow_schema(schema), self.sequence_by)
        return json_with_history(schema, self.sequence_by)

    def noted(self) -> Mapping[str, Json]:
        """Return what `ref` of every staged piece records, where the decision freezes it; nothing for a plain `append`."""
        if self == APPENDING:
            return {}
        noted: dict[str, Json] = {"write": self.write}
        if self.key:
            noted["key"] = list(self.key)
        if self.deletes:
            noted["deletes"] = True
        if self.sequence_by is not None:
            noted["sequence_by"] = self.sequence_by
        if self.update_when is not None:
            noted["update_when"] = self.update_when.text
        if self.keeps_rows:
            noted["keeps_rows"] = True
        return noted


APPENDING: Final = WriteMode()


def require_mode(mode: WriteMode, partition_by: tuple[str, ...]) -> None:
    """Raise Usage for an unknown `write`, or one that lacks its key or its partitions."""
    if mode.write not in WRITES:
        raise Usage(f"`write` is {mode.write!r}, expected one of {', '.join(WRITES[:-1])}.", remedy="Correct it.")
    if mode.is_by_key and not mode.key:
        raise Usage(f"`write: {mode.write}` needs a key.", remedy="Add `key: [columns that identify a row]`.")
    require_sequence(mode.write, mode.sequence_by, deletes=mode.deletes)
    if mode.write == OVERWRITE_PARTITIONS and not partition_by:
        raise Usage(f"`write: {mode.write}` needs partitions.", remedy="Add `partition_by: [columns]`.")


def decided_mode(publication: Publication) -> WriteMode:
    """Return how the publication was decided to be written, whatever the settings are now (I8). It has at least one piece."""
    ref = publication.staged[0].ref
    noted = ref.get("key")
    key = tuple(map(str, noted)) if isinstance(noted, list) else ()
    sequence, condition = ref.get("sequence_by"), ref.get("update_when")
    return WriteMode(
        write=str(ref.get("write", APPEND)),
        key=key,
        deletes=ref.get("deletes") is True,
        sequence_by=None if sequence is None else str(sequence),
        update_when=None if condition is None else parse_condition(str(condition)),
        keeps_rows=ref.get("keeps_rows") is True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContent:
    """What the marker counts. `decided`: all rows ever decided for the sink; `shown`: those that the table holds of them."""

    write: str
    decided: Totals = NO_ROWS
    shown: Totals = NO_ROWS

    def after(self, mode: WriteMode, batch: Totals, *, displaced: Totals) -> "TableContent":
        """Return the content after `batch`. `displaced`: rows of the table or of the batch that the table does not show then."""
        batch = Totals(rows=batch.rows, digest=batch.digest)
        shown = batch if mode.write == REPLACE else minus(self.shown + batch, displaced)
        return TableContent(write=mode.write, decided=self.decided + batch, shown=shown)


def content_numbers(content: TableContent) -> Iterator[tuple[str, int]]:
    """Yield the content as named numbers: row counts of up to 63 bits, all others of up to 32 bits."""
    yield "write", WRITES.index(content.write)
    for name, totals in (("decided", content.decided), ("shown", content.shown)):
        yield f"{name}:rows", totals.rows
        yield f"{name}:digest:0", totals.digest // _WORD
        yield f"{name}:digest:1", totals.digest % _WORD


CONTENT_NUMBERS: Final = tuple(name for name, _ in content_numbers(TableContent(write=APPEND)))


def content_from(numbers: Mapping[str, int]) -> TableContent:
    """Return the content from all of its numbers."""

    def totals(name: str) -> Totals:
        digest = numbers[f"{name}:digest:0"] * _WORD + numbers[f"{name}:digest:1"]
        return Totals(rows=numbers[f"{name}:rows"], digest=digest)

    return TableContent(write=WRITES[numbers["write"]], decided=totals("decided"), shown=totals("shown"))
