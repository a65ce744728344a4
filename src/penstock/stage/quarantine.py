"""The quarantine's part in the staging pass: the records of a batch that cannot be decoded, read once more by their offsets.

They bypass the transform: what it does, and which state it keeps, has nothing to do with them. Both passes decode by the same
schemas. Only one verdict can change between the passes: that the registry does not know a schema. So the records for the
quarantine are found first. When the rows are staged, the registry is asked again for the schemas that it did not know: as it
forgets none, it has not known them at any moment in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.core.bad_record import PACKED, UNKNOWN
from penstock.core.model import OffsetRange, RowDigest, SinkName, SourceName, Staged
from penstock.errors import Refused, Retryable, StageFailed
from penstock.protocols import Sink
from penstock.spec.location import Quarantine
from penstock.stage.rules import Violations

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.registry.decoding import DecodePass
    from penstock.stage.aside import QuarantineShare


EXPECT = "expect"
"""The key of a source's rules in the pipeline file."""


class ReadableAgain(Protocol):
    """A source whose records can be read once more."""

    def between(self, spark: "SparkSession", offsets: OffsetRange) -> "DataFrame | None":
        """Return the records between two offsets as a table, None if there can be none."""
        ...

    def count(self, offsets: OffsetRange) -> int:
        """Return how many offsets the range spans."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecords:
    """The undecodable records of one batch, with the column UNKNOWN. `offsets`: how many the batch reads of their sources."""

    rows: "pa.Table"
    offsets: int

    @property
    def for_sink(self) -> "pa.Table":
        """The rows for the quarantine, without the column UNKNOWN."""
        return self.rows.drop_columns([UNKNOWN])


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineMember:
    """The quarantine: its `sink`, which gets no row of the pipeline, and the `sources` whose undecodable records it gets.

    `puts_aside`: the sinks of which it gets the rows that they cannot take. `histories`: see `QuarantineShare`.
    """

    sink: Sink
    settings: Quarantine
    sources: Mapping[SourceName, ReadableAgain]
    passes: "Mapping[SourceName, DecodePass]"
    puts_aside: frozenset[SinkName] = frozenset()
    histories: Mapping[str, str] = field(default_factory=dict)

    def found(self, spark: "SparkSession", ranges: Sequence[OffsetRange], *, decided: int | None = None) -> BadRecords | None:
        """Return the bad records between these offsets, None if there are none.

        `decided`: the number of bad records that a batch was decided with. Present limits do not apply to it, but tasks stop
        beyond that number. Raises StageFailed if there are too many, Refused if a source with a quarantine is not read once, and
        what the tasks raise.
        """
        if not self.sources:
            return None
        from penstock.registry.decoding import unpacked

        require_read_once(self.sources, [each.source for each in ranges])
        once = {each.source: each for each in ranges}  # a union of a source with itself has its range twice
        ours = [each for each in once.values() if each.source in self.sources]
        at_most = self.settings.max_rows if decided is None else decided
        rows = unpacked(packed for each in ours for packed in self._read(spark, each, at_most=at_most))
        if not rows.num_rows:
            return None
        bad = BadRecords(rows=rows, offsets=sum(self.sources[each.source].count(each) for each in ours))
        if decided is None:
            self._require_few(bad)
        return bad

    def put_aside(self, bad: BadRecords | None, violations: Violations) -> "pa.Table | None":
        """Return all rows for the quarantine, None if there are none. Raises StageFailed if they are too many together."""
        import pyarrow as pa

        tables = [each for each in (None if bad is None else bad.for_sink, violations.aside) if each is not None]
        rows = sum(each.num_rows for each in tables)
        if rows > self.settings.max_rows:
            raise StageFailed(
                f"{rows} records of the batch cannot be decoded or do not meet a rule; "
                f"`quarantine: {{max_rows: {self.settings.max_rows}}}` allows fewer.",
                remedy="Nothing of the batch was decided. Correct what writes such records, or allow more.",
            )
        return pa.concat_tables(tables) if tables else None

    def share(self, row_digest: RowDigest) -> "QuarantineShare":
        """Return the quarantine's part in the pass over the rows, where tasks find those that a sink cannot take."""
        from penstock.stage.aside import QuarantineShare  # with pyarrow

        return QuarantineShare(
            sink=self.sink.name,
            stager=self.sink.stager(),
            row_digest=row_digest,
            max_rows=self.settings.max_rows,
            histories=self.histories,
        )

    def require_few_refused(self, pieces: Sequence[Staged], *, rows: int, others: int = 0) -> None:
        """Raise StageFailed if the sinks refused too many of the batch's `rows`. `others` are put aside besides."""
        refused = sum(piece.totals.rows for piece in pieces if piece.sink == self.sink.name)
        settings = self.settings
        if refused + others > settings.max_rows:
            limit = f"max_rows: {settings.max_rows}"
        elif settings.max_share < 1 and refused > settings.max_share * rows:  # several sinks may refuse one row
            limit = f"max_share: {settings.max_share}"
        else:
            return
        raise StageFailed(
            f"Of {rows} rows of the batch, sinks cannot take {refused}; `quarantine: {{{limit}}}` allows fewer.",
            remedy="Nothing of the batch was decided. Correct the sinks' settings, or what makes such rows, or allow more.",
        )

    def require_still_bad(self, bad: BadRecords | None) -> None:
        """Raise Retryable if the registry now knows a schema that it did not know when `bad` were found."""
        if bad is None:
            return
        from penstock.registry.client import Registry, SchemaUnknown

        unknown = bad.rows.filter(bad.rows[UNKNOWN])
        named = zip(unknown["source"].to_pylist(), unknown["schema_id"].to_pylist(), strict=True)
        for source, schema_id in dict.fromkeys(named):
            place = self.passes[SourceName(source)].place
            if place is None:  # what no registry decodes names no schema
                continue
            try:
                Registry(place).by_id(schema_id)
            except SchemaUnknown:
                continue
            raise Retryable(
                f"The schema registry of source {source!r} knows the schema with id {schema_id} since the batch was read.",
                remedy="Start again: the batch is read anew.",
            )

    def _read(self, spark: "SparkSession", each: OffsetRange, *, at_most: int) -> Sequence[bytes]:
        from penstock.registry.decoding import QuarantinePass

        frame = self.sources[each.source].between(spark, each)
        if frame is None:
            return []
        one = QuarantinePass(decode=self.passes[each.source], at_most=at_most)
        try:
            return [bytes(row[PACKED]) for row in frame.mapInArrow(one, f"{PACKED} binary").collect()]
        except Exception as cause:
            from penstock.stage.staging import from_spark  # with pyarrow, which commands that only look do not load

            raise from_spark(cause) from cause

    def _require_few(self, bad: BadRecords) -> None:
        found = bad.rows.num_rows
        settings = self.settings
        if found > settings.max_rows:
            raise _too_many(bad, f"more than {settings.max_rows} records", f"max_rows: {settings.max_rows}")
        if found > settings.max_share * max(bad.offsets, 1):
            raise _too_many(bad, f"{found} records", f"max_share: {settings.max_share}")


def require_read_once(names: Iterable[str], sources: Sequence[SourceName], *, setting: str = "undecodable: quarantine") -> None:
    """Raise Refused unless each of `names`, which have that `setting`, is one of the query's `sources` and Spark reads it once.

    A second scan (`name#2` in `penstock.transform.plan.source_order`) has its own offsets: its bad records would be in no sink.
    """
    for name in names:
        if name not in sources:
            read = ", ".join(sources) or "nothing"
            what, remedy = f"the query reads {read}, not {name!r}", "Read it in the transform by its name"
        elif any(each.startswith(f"{name}#") for each in sources):
            what, remedy = "the query reads it more than once", "Read it once in the transform"
        else:
            continue
        bad = "rows that do not meet a rule" if setting == EXPECT else "records that cannot be decoded"
        raise Refused(
            f"Source {name!r} has `{setting}`, but {what}: {bad} could be lost.",
            remedy=f"{remedy}, or take `{setting}` away.",
        )


def _too_many(bad: BadRecords, found: str, limit: str) -> StageFailed:
    [first] = bad.rows.slice(0, 1).to_pylist()
    return StageFailed(
        f"Of the batch's {bad.offsets} offsets, {found} cannot be decoded; `quarantine: {{{limit}}}` allows fewer. The first is "
        f"at offset {first['offset']} of partition {first['partition']} of topic {first['topic']!r}: {first['error']}.",
        remedy="Nothing of the batch was decided. Correct `decode`, or what writes such records, or allow more.",
    )
