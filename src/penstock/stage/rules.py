"""The rules of sources in the staging of a batch: rows that do not meet one are counted, and collected for the quarantine.

The query itself reads only the rows that meet all rules. The others are found by a read of their own, of the same input: whatever
the transform does, which state it keeps, and how often Spark repeats a task has nothing to do with them. The rules give the same
for a row each time, and the input of a batch does not change, so each row is on one side.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.bad_record import RECORD, RECORD_FIELDS, SCHEMA
from penstock.core.dropped_rows import DroppedRows
from penstock.core.model import OffsetRange, SourceName
from penstock.errors import StageFailed
from penstock.spark.column_name import quoted
from penstock.spec.location import Quarantine
from penstock.spec.rule import OnViolation, Rule, violated_sql
from penstock.support.secret import shown_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_RULE = "_penstock_rule"
_PLACE = ("file", "topic", "partition", "offset")
_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class RereadsRows(Protocol):
    """A source whose rows of a batch can be read once more, as the query reads them."""

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame | None":
        """Return the rows between two offsets, or of input files, with the column RECORD; None if there are none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Violations:
    """The rows of one batch that do not meet a rule: how many were dropped, and those for the quarantine, of SCHEMA.

    `rows_read`: how many rows each source with rules gave, those that meet them included.
    """

    dropped: DroppedRows = field(default_factory=dict)
    aside: "pa.Table | None" = None
    rows_read: Mapping[SourceName, int] = field(default_factory=dict)


NO_VIOLATIONS = Violations()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """How many rows of a source were read, how many did not meet each rule, and where the first of those is."""

    rows: int
    violations: Mapping[str, int]
    first: Mapping[str, Mapping[str, Any]]

    def of(self, rules: Mapping[str, Rule], *actions: OnViolation) -> Mapping[str, int]:
        return {name: number for name, number in self.violations.items() if rules[name].on_violation in actions and number}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCheck:
    """The rules of a pipeline's sources; `quarantine` holds the limits of what may be put aside."""

    rules: Mapping[SourceName, Mapping[str, Rule]]
    sources: Mapping[SourceName, RereadsRows]
    quarantine: Quarantine | None

    def violations(
        self, spark: "SparkSession", ranges: Sequence[OffsetRange], files: Mapping[SourceName, Sequence[str]]
    ) -> Violations:
        """Read a batch's input and return what does not meet a rule.

        `ranges`: of all sources of the batch; `files`: the input files of file sources. Raises StageFailed for a row that fails
        the batch, and for more rows than the quarantine allows.
        """
        counted = dict[SourceName, _Counted]()
        found: list[tuple[SourceName, DataFrame]] = []
        for source, frame in self._frames(spark, ranges, files):
            counted[source] = _count(frame, self.rules[source])
            found.append((source, frame))
        for source, counts in counted.items():
            _require_none_fails(source, counts, self.rules[source])
        self._require_few(counted)
        tables = [
            self._collect(source, frame, counted[source])
            for source, frame in found
            if counted[source].of(self.rules[source], "quarantine")
        ]
        rows_read = {source: counts.rows for source, counts in counted.items()}
        return Violations(dropped=self._dropped(counted, "drop"), aside=_concatenated(tables), rows_read=rows_read)

    def recount(
        self, spark: "SparkSession", ranges: Sequence[OffsetRange], files: Mapping[SourceName, Sequence[str]]
    ) -> tuple[DroppedRows, int]:
        """Return what the rules drop of a batch, and how many rows they put aside, whatever the limits are.

        Rows that would fail it, by a rule that is new, count as dropped: the query leaves them out as well.
        """
        counted = {source: _count(frame, self.rules[source]) for source, frame in self._frames(spark, ranges, files)}
        aside = sum(sum(each.of(self.rules[source], "quarantine").values()) for source, each in counted.items())
        return self._dropped(counted, "drop", "fail"), aside  # I8

    def _dropped(self, counted: Mapping[SourceName, _Counted], *actions: OnViolation) -> DroppedRows:
        dropped = {source: counts.of(self.rules[source], *actions) for source, counts in counted.items()}
        return {source: rows for source, rows in dropped.items() if rows}

    def _frames(
        self, spark: "SparkSession", ranges: Sequence[OffsetRange], files: Mapping[SourceName, Sequence[str]]
    ) -> "Iterator[tuple[SourceName, DataFrame]]":
        once = {each.source: each for each in ranges}  # a union of a source with itself has its range twice
        for each in once.values():
            if each.source in self.rules:
                frame = self.sources[each.source].rows(spark, each, files.get(each.source, ()))
                if frame is not None:
                    yield each.source, frame.selectExpr("*", f"{violated_sql(self.rules[each.source])} AS {_RULE}")

    def _require_few(self, counted: Mapping[SourceName, _Counted]) -> None:
        """Raise StageFailed if more rows are to be put aside than the quarantine allows: they pass through the driver."""
        aside = {source: sum(each.of(self.rules[source], "quarantine").values()) for source, each in counted.items()}
        number, limits = sum(aside.values()), self.quarantine
        if not number or limits is None:
            return
        rows = sum(counted[source].rows for source, own in aside.items() if own)
        if number > limits.max_rows:
            limit = f"max_rows: {limits.max_rows}"
        elif number > limits.max_share * rows:
            limit = f"max_share: {limits.max_share}"
        else:
            return
        rules = (
            f"{each} of sources.{source}.expect.{rule}"
            for source, counts in counted.items()
            for rule, each in counts.of(self.rules[source], "quarantine").items()
        )
        raise StageFailed(
            f"Of {rows} rows of the batch, {number} do not meet a rule ({', '.join(rules)}); `quarantine: {{{limit}}}` allows "
            "fewer.",
            remedy="Nothing of the batch was decided. Correct the rule, or what writes such rows, or allow more.",
        )

    def _collect(self, source: SourceName, frame: "DataFrame", counted: _Counted) -> "pa.Table":
        """Return the rows for the quarantine. Raises StageFailed if there are others than were counted."""
        rules = self.rules[source]
        expected = counted.of(rules, "quarantine")
        table = _aside(source, _collected(frame, expected), rules)
        if table.num_rows != sum(expected.values()):
            raise StageFailed(
                f"Source {source!r} gave {sum(expected.values())} rows of the batch that do not meet a rule, and then "
                f"{table.num_rows}.",
                remedy="Nothing of the batch was decided. Start again: the batch is read anew.",
            )
        return table


def _count(frame: "DataFrame", rules: Mapping[str, Rule]) -> _Counted:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    place = F.struct(*(F.col(f"{RECORD}.{name}").alias(name) for name in _PLACE))
    slim = frame.select(_RULE, place.alias("place"))
    sums = [F.count("*")]
    for name in rules:
        is_violated = F.col(_RULE) == F.lit(name)
        sums += [F.count_if(is_violated), F.min(F.when(is_violated, F.col("place")))]
    rows, *found = _run(lambda: slim.agg(*sums).collect())[0]
    firsts = {name: {} if first is None else first.asDict() for name, first in zip(rules, found[1::2], strict=True)}
    return _Counted(rows=rows, violations=dict(zip(rules, found[0::2], strict=True)), first=firsts)


def _collected(frame: "DataFrame", rules: Mapping[str, int]) -> "pa.Table":
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    columns = [F.col(quoted(name)) for name in frame.columns if name not in {RECORD, _RULE}]
    row = F.to_json(F.struct(*columns), _AS_JSON).alias("row")
    record = [F.col(f"{RECORD}.{name}").alias(name) for name in RECORD_FIELDS]
    wanted = frame.where(F.col(_RULE).isin(*rules)).select(*record, F.col(_RULE).alias("rule"), row)
    return _run(wanted.toArrow)


def _aside(source: SourceName, found: "pa.Table", rules: Mapping[str, Rule]) -> "pa.Table":
    """Return rows of the quarantine's columns."""
    import pyarrow as pa  # which commands that only look do not load

    from penstock.spark.schema import arrow_schema

    schema = arrow_schema(SCHEMA)
    names = found.column("rule").to_pylist()
    made: dict[str, list[Any]] = {
        "source": [source] * len(names),
        "headers": [_headers(text) for text in found.column("headers").to_pylist()],
        "error": [f"expect.{name} is not met: {shown_text(rules[name].sql)}" for name in names],
    }
    columns = [
        pa.array(made[each.name], each.type)
        if each.name in made
        else found.column(each.name).cast(each.type)
        if each.name in found.column_names
        else pa.nulls(len(names), each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _headers(text: str | None) -> list[dict[str, Any]] | None:
    if text is None:
        return None
    given = [each or {} for each in json.loads(text)]
    return [{"key": each.get("key"), "value": None if each.get("value") is None else b64decode(each["value"])} for each in given]


def _concatenated(tables: "Sequence[pa.Table]") -> "pa.Table | None":
    import pyarrow as pa

    return pa.concat_tables(tables) if tables else None


def _run(job: Any) -> Any:
    try:
        return job()
    except Exception as cause:
        from penstock.stage.staging import from_spark  # with pyarrow, which commands that only look do not load

        raise from_spark(cause) from cause


def _require_none_fails(source: SourceName, counted: _Counted, rules: Mapping[str, Rule]) -> None:
    failing = counted.of(rules, "fail")
    if not failing:
        return
    rule, number = next(iter(failing.items()))
    rows = f"{number} rows of the batch do" if number > 1 else "1 row of the batch does"
    raise StageFailed(
        f"{rows} not meet sources.{source}.expect.{rule} ({shown_text(rules[rule].sql)}). The first is "
        f"{_place(counted.first[rule])}.",
        remedy="Nothing of the batch was decided. Correct the rule, or what writes such rows, or take `on_violation: drop` or "
        "`quarantine` for the rule.",
    )


def _place(first: Mapping[str, Any]) -> str:
    if first.get("topic") is not None:
        return f"at offset {first['offset']} of partition {first['partition']} of topic {first['topic']!r}"
    return f"in {first.get('file')}"
