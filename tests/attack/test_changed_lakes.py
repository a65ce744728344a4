"""The table of test_decided_columns once more, for tables of open formats: of rows and table one changes, or both.

Each start works, or is refused with a remedy that leads there when it is carried out to the letter. Rows that come and go with
`schema_changes: add` are in test_grown_lakes, types and names that are refused in test_refused_lakes.
"""

import re
from collections import Counter

import pytest
from tests.attack.growing_lake import TABLES, GrowingLake
from tests.attack.test_decided_columns import (
    rows_change_their_order,
    rows_gain_a_column,
    rows_get_a_wider_type,
    rows_lose_a_column,
)


class ChangingLake(GrowingLake):
    """A table whose sink adds no columns until somebody is told to set that."""

    def __init__(self, directory, kind, **settings):
        super().__init__(directory, kind, **{"schema_changes": "fail", **settings})
        self.before = None

    def change(self, change):
        """Have rows or table changed, once it is noted how the table was."""
        if isinstance(self.rig, TABLES["iceberg"]):
            self.before = self.rig.table().metadata_location
        change(self)

    def _carry_out(self, refusal):
        if "by registering its metadata of then in the catalog" in refusal.remedy:
            self.rig.register(self.before)
        elif "Set schema_changes: add" in refusal.remedy:
            self.settings["schema_changes"] = "add"
        elif "Cast the column in the transform to" in refusal.remedy:
            name = re.search(r"in column '(\w+)'", refusal.message)[1]
            self.columns[name] = self.first_columns[name]
        elif "let the table's column be null" in refusal.remedy:
            with self.rig.table().update_schema() as update:
                update.make_column_optional(re.search(r"has a column '(\w+)'", refusal.message)[1])
        else:
            super()._carry_out(refusal)
            return
        self.remedies.append(f"{type(refusal).__name__}: {refusal.message} -> {refusal.remedy}")


def table_gains_a_column(table):
    table.rig.add_column("more", "long")


def rows_and_table_gain_a_column(table):
    rows_gain_a_column(table)
    table_gains_a_column(table)


def table_gains_a_column_that_must_have_a_value(table):
    table_gains_a_column(table)
    with table.rig.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("more", required=True)


def table_loses_a_column(table):
    with table.rig.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")


def rows_and_table_lose_a_column(table):
    rows_lose_a_column(table)
    table_loses_a_column(table)


def a_column_is_renamed_in_the_table(table):
    with table.rig.table().update_schema() as update:
        update.rename_column("name", "title")


def a_column_is_renamed_in_rows_and_table(table):
    a_column_is_renamed_in_the_table(table)
    table.columns = {"id": "long", "title": "string"}


OF_BOTH = [
    rows_gain_a_column,
    rows_lose_a_column,
    rows_get_a_wider_type,
    rows_change_their_order,
    table_gains_a_column,
    rows_and_table_gain_a_column,
]
OF_ICEBERG = [
    table_gains_a_column_that_must_have_a_value,
    table_loses_a_column,
    rows_and_table_lose_a_column,
    a_column_is_renamed_in_the_table,
    a_column_is_renamed_in_rows_and_table,
]
"""Delta does these only with column mapping, or not at all. Neither format's library gives a column a default."""

THAT_DESTROY_VALUES = {table_loses_a_column, rows_and_table_lose_a_column}
"""A column that is added again is another one: readers find NULL, and `verify` says so. A decided batch needs the old one."""


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(kind, change, id=f"{kind}-{change.__name__}")
        for kind, changes in (("delta", OF_BOTH), ("iceberg", OF_BOTH + OF_ICEBERG))
        for change in changes
    ],
)
def test_a_start_works_or_says_how(tmp_path, kind, change, outstanding):
    table = ChangingLake(tmp_path, kind)
    table.deliver((1, "a"), (2, "b"))
    table.deliver((3, "c"), (4, None), killed=outstanding)
    table.change(change)
    table.started_by_the_book()
    table.deliver(*(tuple({"id": number, "name": "e", "title": "e"}.get(name) for name in table.columns) for number in (5, 6)))
    assert Counter(value for (value,) in table.content("id").elements()) == Counter(range(1, 7)), table.remedies
    report = table.verify()
    if change in THAT_DESTROY_VALUES and not outstanding:
        assert not report.ok
        assert all("readers find NULL in its column 'name'" in problem.message for problem in report.problems), report
    else:
        assert report.ok, (report, table.remedies)
    table.bench.close()
