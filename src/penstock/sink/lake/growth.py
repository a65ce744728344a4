"""`Growth`: a start makes a table fit rows that have gained columns, and refuses rows that have lost some.

New columns come at the table's end and may be null. Older files lack them, also those that are decided and not yet committed:
readers find NULL there. So it does not matter where a driver dies: the table is as it was, or has one more column of NULLs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.faults import FaultPoint
from penstock.core.model import Json
from penstock.errors import Conflict, OutcomeUnknown, Refused, Retryable
from penstock.sink.lake.columns import same_but_for_case
from penstock.sink.lake.log import TableLog, TableSnapshot
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.write_mode import REPLACE, WriteMode
from penstock.sink.table.preparation import as_nulls
from penstock.sink.table.target import may_add

ADD_COLUMNS = FaultPoint("lake.add_columns", "Columns that the rows have and the table lacks are added to it by a commit.")

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Compares rows of Spark's `schema` with the table. `adds`: columns that it lacks are added, except columns of the key."""

    log: TableLog
    schema: str
    mode: WriteMode
    adds: bool

    def grown(self, newest: Callable[[], TableSnapshot], require_fit: Callable[[TableSnapshot], None]) -> TableSnapshot:
        """Return a snapshot that has all columns of the rows: the `newest`, or one to which they are added.

        Nothing is added to a table that is unfit in another way: `require_fit` raises first. Columns that other drivers add
        meanwhile are found by the next look, and so is a commit that landed although it raised. Raises what `newest` and
        `require_fit` raise, OutcomeUnknown, Retryable, and PublishFailed for a commit that may not be durable.
        """
        failure: Conflict | OutcomeUnknown | None = None
        first = snapshot = newest()
        for _ in range(_TRIES):
            require_fit(snapshot)
            missing = self.missing(snapshot)
            if not missing:
                if snapshot is not first:
                    self.log.sync(since=first.version, upto=snapshot.version)
                return snapshot
            if isinstance(failure, OutcomeUnknown):
                raise failure
            try:
                with ADD_COLUMNS.around():
                    snapshot.add_columns(self.schema, missing)
            except (Conflict, OutcomeUnknown) as error:
                failure = error
            snapshot = newest()
        raise Retryable(
            f"Other writers changed the {self.log.title} each time that columns were to be added to it: {failure}.",
            remedy="Try again, or let maintenance of the table run at another time.",
        )

    def missing(self, snapshot: TableSnapshot) -> Sequence[str]:
        """Return the columns that a start adds to the table, in the rows' order."""
        there, names = snapshot.columns, _names(self.schema)
        missing = [name for name in names if name not in there]
        is_new = all(same_but_for_case(name, there) is None for name in missing)
        return missing if self.adds and is_new and may_add(missing, names, self.mode.key) else ()

    def schema_there(self, snapshot: TableSnapshot) -> str:
        """Return the rows' schema without the columns that a start adds."""
        missing, rows = self.missing(snapshot), json.loads(self.schema)
        return json.dumps({**rows, "fields": [field for field in rows["fields"] if field["name"] not in missing]})

    def require_none_left_out(self, snapshot: TableSnapshot, reader: FileReader) -> None:
        """Raise Refused if the rows lack a column in which the table has values: it was left out, or renamed."""
        lacking = {} if self.mode.write == REPLACE else left_out(snapshot, self.schema)
        found = reader.filled_column(snapshot.files(), list(lacking))
        if found is not None:
            raise Refused(
                f"The rows lack column {found!r}, which has values in the {self.log.title}. Columns that they lack: "
                f"{', '.join(lacking)}.",
                remedy="Give a column that was renamed its old name in the transform. For one that was left out, add "
                f"{as_nulls(lacking)} to the transform's SELECT.",
            )


def left_out(snapshot: TableSnapshot, schema: str) -> Mapping[str, Json]:
    """Return the columns of the table that rows of Spark's `schema` lack, with Spark's types."""
    names = _names(schema)
    return {name: kind for name, kind in snapshot.columns.items() if name not in names}


def _names(schema: str) -> Sequence[str]:
    return [field["name"] for field in json.loads(schema)["fields"]]
