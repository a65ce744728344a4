"""`batch_column`: a table that tells batches apart loses the rows of some, and its marker counts them no more."""

from dataclasses import replace

import pytest
from tests.unit import duckdb_target
from tests.unit.sqlite_target import targets
from tests.unit.table_target import (
    BATCHES,
    content,
    require_batches_taken_back,
    require_widened_batches_taken_back,
    spark_schema,
    taken_from,
)

from penstock.errors import LedgerMismatch, Refused, Usage

target = pytest.fixture(targets)
in_duckdb = pytest.fixture(duckdb_target.targets)


def test_batches_are_taken_back(target):
    require_batches_taken_back(target)


def test_batches_are_taken_back_in_duckdb(in_duckdb):
    require_batches_taken_back(in_duckdb)


def test_batches_of_before_a_column_was_wider_are_taken_back(target, in_duckdb):
    for each in (target, in_duckdb):
        require_widened_batches_taken_back(each)


def test_a_table_that_does_not_tell_batches_apart_is_refused(target):
    table = target()
    sink = table.sink()
    shown = [table.put(sink, [(number, "a")], batch_id=number) for number in range(2)]
    taken = taken_from(shown, after=shown[0].publication.position, before=9)
    with pytest.raises(Refused, match="do not say of which batch they are: the sink has no `batch_column`"):
        sink.require_taken_back_exactly(taken)
    table.rig.options = {**BATCHES, "schema_changes": "add"}
    sink = table.sink()
    with pytest.raises(
        Refused, match="holds 0 rows of these batches by its column 'written_by', expected 1: some were delivered"
    ):
        sink.require_taken_back_exactly(taken)
    shown.append(table.put(sink, [(2, "a")], batch_id=2))
    taken = taken_from(shown, after=shown[1].publication.position, before=9)
    sink.require_taken_back_exactly(taken)
    sink.take_back(taken)
    assert set(content(table)) == {(0, "a"), (1, "a")}
    other = tuple(replace(each, ledger_id="f" * 32) for each in taken.publications)
    with pytest.raises(LedgerMismatch):
        sink.take_back(replace(taken, publications=other))


def test_a_row_that_somebody_deleted_is_seen_before(target):
    table = target(**BATCHES)
    sink = table.sink()
    shown = [table.put(sink, [(number, "a")], batch_id=number) for number in range(2)]
    table.sql("DELETE FROM t WHERE id = 1")
    with pytest.raises(Refused, match="holds 0 rows of these batches"):
        sink.require_taken_back_exactly(taken_from(shown, after=shown[0].publication.position, before=9))


def test_a_rewind_is_not_finished_without_the_column(target):
    """It was taken out of the file, or renamed there, after the act was recorded."""
    table = target(**BATCHES)
    shown = [table.put(table.sink(), [(number, "a")], batch_id=number) for number in range(2)]
    taken = taken_from(shown, after=shown[0].publication.position, before=9)
    for name in (None, "id"):
        table.rig.options = {} if name is None else {"batch_column": name}
        with pytest.raises(Refused, match=r"has to lose the rows of these batches, .* expected 1"):
            table.rig.make().take_back(taken)
    table.rig.options = BATCHES
    table.sink().take_back(taken)
    assert set(content(table)) == {(0, "a")}


def test_a_column_of_the_rows_has_another_name(target):
    table = target(schema=spark_schema(id="long", Written_By="string"), **BATCHES)
    with pytest.raises(Usage, match="The rows have a column 'written_by', which `batch_column` names"):
        table.sink()
