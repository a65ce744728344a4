"""What Spark sends to a staging task: the rows in every form that a sink takes, each with its hash; routes; which rows are taken.

Columns have positional names, so any column name of the user's works (dots, backticks, names of ours) and none is reserved.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructType

from penstock.core.model import RowDigest, SinkName
from penstock.core.row_hash import row_hashes
from penstock.errors import Usage
from penstock.protocols import ALL_ROWS, OwnRows, ProjectsRows, Sink, Taken
from penstock.spark.column_name import quoted
from penstock.stage.row_hash_sql import rowhash_sql
from penstock.stage.staging import RowForm

TOO_MANY_ROWS = "PENSTOCK_TOO_MANY_ROWS"
_ROW_IN_PARTITION = "(monotonically_increasing_id() & 8589934591)"
_AS_THEY_ARE: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of a staging task: all forms of the rows, each followed by its hash, then the routes, then the predicates.

    `forms`: the rows as they are come first if a sink takes them. `own`: the expressions of each form, empty for the rows as they
    are. `hashes`: each form's hash, over the column names where it is computed. `form_of`: each sink's index in `forms`.
    `texts`: routes that are a text column, with its position. `routes`: all other routes. `predicates`: those of sinks that take
    some of the rows, and those of rows that delete. `row_digest`: the kind of hash.
    """

    forms: tuple[RowForm, ...]
    own: tuple[tuple[str, ...], ...]
    hashes: tuple[str, ...]
    form_of: tuple[int, ...]
    texts: Mapping[str, int]
    routes: tuple[str, ...]
    predicates: tuple[str, ...]
    row_digest: RowDigest

    @staticmethod
    def of(
        schema: StructType, sinks: Sequence[Sink], row_digest: RowDigest, *, taken: Mapping[SinkName, Taken] = ALL_ROWS
    ) -> "Projection":
        """Return the projection that `sinks` need. `taken`: the selections. Raises Usage for columns that cannot be staged."""
        _require_unique(schema.names)
        wanted = [_own_rows(sink, schema, taken.get(sink.name)) for sink in sinks]
        keys = [_AS_THEY_ARE if own is None else tuple(own.columns.items()) for own in wanted]
        distinct = sorted(dict(zip(keys, wanted, strict=True)).items(), key=lambda item: item[1] is not None)
        forms = _forms(schema, [own for _, own in distinct])
        strings = [(place, field.name) for place, field in enumerate(schema) if field.dataType == StringType()]
        texts = {f"CAST({quoted(name)} AS STRING)": place for place, name in strings if _AS_THEY_ARE in keys}
        routes = dict.fromkeys(route_of(sink, taken.get(sink.name)) for sink in sinks)
        return Projection(
            forms=forms,
            own=tuple(() if own is None else tuple(own.columns.values()) for _, own in distinct),
            hashes=tuple(_hash_sql(schema, number, own, row_digest) for number, (_, own) in enumerate(distinct)),
            form_of=tuple([key for key, _ in distinct].index(key) for key in keys),
            texts=texts,
            routes=tuple(route for route in routes if route is not None and route not in texts),
            predicates=tuple(
                dict.fromkeys(filter(None, (sql for each in taken.values() for sql in (each.where, deletes_of(each)))))
            ),
            row_digest=row_digest,
        )

    @property
    def is_plain(self) -> bool:
        """Whether Spark has to compute nothing but the hash."""
        return not self.routes and not self.predicates and not any(self.own)

    def route_index(self, route: str | None) -> int | None:
        """Return the position of a sink's route among the projected columns, None without a route."""
        if route is None or route in self.texts:
            return None if route is None else self.texts[route]
        return self._forms_width + self.routes.index(route)

    def predicate_index(self, predicate: str | None) -> int | None:
        """Return the position of a sink's predicate among the projected columns, None without one."""
        return None if predicate is None else self._forms_width + len(self.routes) + self.predicates.index(predicate)

    def of_arrow(self, rows: "pa.Table") -> "Iterator[pa.RecordBatch]":
        """Project `rows` without Spark. The projection must be plain. Raises TypeError for rare types."""
        for batch in rows.to_batches():
            columns = [*batch.columns, row_hashes(batch, self.row_digest).view(pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])

    def of_rows(self, rows: DataFrame, *, at_most: int | None = None) -> DataFrame:
        """Return `rows` projected. Spark fails with TOO_MANY_ROWS in its message if a partition has more than `at_most` rows."""
        extra = {f"r{place}": f"CAST(({route}) AS STRING)" for place, route in enumerate(self.routes)}
        extra |= {f"w{place}": f"coalesce(({predicate}\n), false)" for place, predicate in enumerate(self.predicates)}
        computed = [f"{sql} AS {name}" for name, sql in extra.items()]
        if not any(self.own):
            return rows.selectExpr(*self._made(0), f"{_guarded(self.hashes[0], at_most)} AS h0", *computed)
        numbers = range(len(self.forms))
        made = rows.selectExpr(*(column for number in numbers for column in self._made(number)), *self._plain_hash(), *computed)
        return made.selectExpr(*(column for number in numbers for column in self._hashed(number, at_most)), *extra)

    @property
    def _forms_width(self) -> int:
        return sum(form.width for form in self.forms)

    def _made(self, number: int) -> list[str]:
        plain = [quoted(name) for name in self.forms[number].columns]
        return [
            f"{sql} AS {name}" for sql, name in zip(self.own[number] or plain, _names(self.forms[number], number), strict=True)
        ]

    def _plain_hash(self) -> list[str]:
        """Return the hash over the user's own columns. Other forms are hashed in the next step, over columns made only once."""
        return [] if self.own[0] else [f"{self.hashes[0]} AS h0"]

    def _hashed(self, number: int, at_most: int | None) -> list[str]:
        hashed = self.hashes[number] if self.own[number] else "h0"
        return [*_names(self.forms[number], number), f"{hashed if number else _guarded(hashed, at_most)} AS h{number}"]


def route_of(sink: Sink, taken: Taken | None) -> str | None:
    """Return the sink's route, None without one."""
    return None if sink.route_sql is None else _of_taken(sink.route_sql, taken)


def deletes_of(taken: Taken | None) -> str | None:
    """Return the predicate of the rows that delete, None if none do."""
    return None if taken is None or taken.deletes is None else _of_taken(f"({taken.deletes}\n)", taken)


def _own_rows(sink: Sink, schema: StructType, taken: Taken | None) -> OwnRows | None:
    own = sink.own_rows(schema.json()) if isinstance(sink, ProjectsRows) else None
    own = own or (None if taken is None else taken.own)
    return own and replace(own, columns={name: _of_taken(sql, taken) for name, sql in own.columns.items()})


def _of_taken(sql: str, taken: Taken | None) -> str:
    """Return `sql`, computed only for the rows that the sink takes: it may fail for others."""
    return sql if taken is None or taken.where is None else f"if(({taken.where}\n), {sql}, NULL)"


def _forms(schema: StructType, wanted: Sequence[OwnRows | None]) -> tuple[RowForm, ...]:
    forms = list[RowForm]()
    first = 0
    for own in wanted:
        columns, row_schema = (tuple(schema.names), schema.json()) if own is None else (tuple(own.columns), own.schema)
        forms.append(RowForm(columns=columns, schema=row_schema, first=first))
        first += forms[-1].width
    return tuple(forms)


def _names(form: RowForm, number: int) -> list[str]:
    return [f"c{number}_{place}" for place in range(len(form.columns))]


def _hash_sql(schema: StructType, number: int, own: OwnRows | None, row_digest: RowDigest) -> str:
    if own is None:
        return rowhash_sql(schema, row_digest)
    made = StructType.fromJson(json.loads(own.schema))
    return rowhash_sql(made, row_digest, columns=[f"c{number}_{place}" for place in range(len(made))])


def _guarded(hash_sql: str, at_most: int | None) -> str:
    if at_most is None:
        return hash_sql
    return f"if({_ROW_IN_PARTITION} < {at_most}, {hash_sql}, CAST(raise_error('{TOO_MANY_ROWS}') AS BIGINT))"


def _require_unique(names: Sequence[str]) -> None:
    if not names:
        raise Usage("The batch has no columns.", remedy="Select at least one column in the transform.")
    doubled = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if doubled is not None:
        raise Usage(
            f"The batch has two columns named {doubled!r}.",
            remedy="Rename one of them in the transform.",
        )
