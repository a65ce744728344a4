"""Tables whose rows are compared with those of a batch before it is written, in a SQLite file: `history` and `update_when`."""

from collections import Counter

import pytest
from tests.unit.compared_target import (
    CHANGES,
    CONDITION,
    DELETING,
    HISTORY,
    IN_TIME,
    VERSIONS,
    found,
    require_history,
    require_updates,
)
from tests.unit.sqlite_target import targets
from tests.unit.table_target import GONE, content, spark_schema, taken_from

from penstock.errors import FormatTooNew, PublishFailed, Refused, StageFailed, Usage
from penstock.sink.table.marker import FORMAT_VERSION

target = pytest.fixture(targets)

UPDATES = {"schema": CHANGES, "write": "upsert", "key": ["id"], "update_when": CONDITION}


class TestHistory:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("deletes", [{}, DELETING], ids=["kept", "deleted"])
    @pytest.mark.parametrize("options", [HISTORY, IN_TIME], ids=["stream", "time"])
    def test_random_changes_equal_a_replay_in_memory(self, target, options, deletes, seed):
        require_history(target(**options, **deletes), seed)

    def test_every_change_closes_the_row_that_was_current(self, target):
        table = target(**HISTORY, **DELETING)
        sink = table.sink()
        first = table.put(sink, [(1, "a", 1), (2, "b", 1)], batch_id=0).publication.position << 32
        second = table.put(sink, [(1, "c", 2), (2, "b", 1), (1, "d", 3), (2, GONE, 0)], batch_id=1).publication.position << 32
        assert found(table) == Counter(
            [
                (1, "a", 1, first, second, False),
                (1, "c", 2, second, second + 2, False),
                (1, "d", 3, second + 2, None, True),
                (2, "b", 1, first + 1, second + 3, False),
            ]
        )

    def test_a_late_change_takes_its_place(self, target):
        table = target(**IN_TIME)
        sink = table.sink()
        table.put(sink, [(1, "a", 10), (1, "c", 30)], batch_id=0)
        table.put(sink, [(1, "b", 20), (1, "start", 5), (1, "c", 30)], batch_id=1)
        assert [row[1:5] for row in table.sql(f"{VERSIONS} ORDER BY valid_from")] == [
            ("start", 5, 5, 10),
            ("a", 10, 10, 20),
            ("b", 20, 20, 30),
            ("c", 30, 30, None),
        ]

    def test_a_batch_that_repeats_what_is_there_writes_nothing(self, target):
        table = target(**HISTORY)
        sink = table.sink()
        table.put(sink, [(1, "a", None), (2, None, 5)], batch_id=0)
        before = found(table)
        table.put(sink, [(1, "a", None), (2, None, 5), (1, "a", None)], batch_id=1)
        assert found(table) == before
        assert table.sql("SELECT rows_decided, rows_after FROM penstock_marker") == [(5, 2)]
        assert table.verify(sink).ok

    @pytest.mark.parametrize("change", ["valid_to = 7", "is_current = 0", "name = 'x'", "valid_from = 3"])
    def test_verify_covers_the_columns_of_the_history(self, target, change):
        table = target(**HISTORY)
        sink = table.sink()
        table.put(sink, [(1, "a", 1)], batch_id=0)
        table.sql(f"UPDATE t SET {change}")
        assert not table.verify(sink).ok

    def test_a_decided_batch_keeps_its_history_whatever_the_settings_are(self, target):
        table = target(**IN_TIME)
        table.put(table.sink(), [(1, "a", 1)], batch_id=0)
        decided = table.decided_but_not_published(table.sink(), [(1, "b", 2)], batch_id=1)
        assert not table.rig.make(sequence_by=None).publish(decided).already
        assert found(table) == Counter([(1, "a", 1, 1, 2, False), (1, "b", 2, 2, None, True)])
        assert table.verify(table.rig.make()).ok

    @pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
    def test_history_begins_with_the_table(self, target, first, then):
        table = target(**{**HISTORY, "history": first})
        table.put(table.sink(), [(1, "a", 1)], batch_id=0)
        with pytest.raises(Refused, match=r"missing in the table|`history: true` so far|no unique index"):
            table.rig.make(history=then).prepare(pipeline="shop", schema=CHANGES)

    def test_an_older_penstock_is_kept_away(self, target):
        table = target(**HISTORY)
        table.put(table.sink(), [(1, "a", 1)], batch_id=0)
        assert table.sql('SELECT format_version, "write" FROM penstock_marker') == [(FORMAT_VERSION, "history")]
        table.sql(f"UPDATE penstock_marker SET format_version = {FORMAT_VERSION + 1}")
        with pytest.raises(FormatTooNew):
            table.verify(table.rig.make())

    def test_new_columns_are_empty_in_versions_of_before(self, target):
        table = target(**HISTORY, schema_changes="add")
        table.put(table.sink(), [(1, "a", 1), (2, "b", 1)], batch_id=0)
        table.rig.schema = spark_schema(id="long", name="string", version="long", more="string")
        table.columns.append("more")
        sink = table.sink()
        table.put(sink, [(1, "a", 1, None), (2, "b", 1, "x")], batch_id=1)
        assert table.sql("SELECT id, more, is_current FROM t ORDER BY id, valid_from") == [
            (1, None, 1),
            (2, None, 0),
            (2, "x", 1),
        ]
        assert table.verify(sink).ok

    def test_rows_without_a_time_fail_before_they_are_decided(self, target):
        table = target(**IN_TIME, **DELETING)
        sink = table.sink()
        for row in ((1, "a", None), (1, GONE, None)):
            with pytest.raises(StageFailed, match="NULL in column 'version'"):
                table.put(sink, [row], batch_id=0)

    def test_batches_cannot_be_taken_back(self, target):
        table = target(**HISTORY)
        sink = table.sink()
        shown = [table.put(sink, [(1, str(number), 1)], batch_id=number) for number in range(2)]
        with pytest.raises(Refused, match="keeps history: later batches have closed"):
            sink.require_taken_back_exactly(taken_from(shown, after=1, before=99))

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"write": "append", "key": []}, "`history` is for `write: upsert`"),
            ({"update_when": "old.version < 3"}, "`update_when` is given, and `history` as well"),
            ({"schema_changes": "widen"}, "not for tables with `history`"),
            ({"schema": spark_schema(id="long", VALID_TO="long")}, "column 'VALID_TO', which `history` adds"),
            ({"sequence_by": "when"}, "sequence_by names column 'when'"),
            ({"sequence_by": "name", "schema": spark_schema(id="long", name="double")}, "has the type double"),
        ],
    )
    def test_settings_that_do_not_go_together(self, target, options, said):
        with pytest.raises(Usage, match=said):
            target(**{**HISTORY, **options}).sink()


class TestUpdateWhen:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("more", [{}, DELETING, {"sequence_by": "version"}], ids=["plain", "deletes", "sequence"])
    def test_random_changes_equal_a_replay_in_memory(self, target, more, seed):
        require_updates(target(**UPDATES, **more), seed)

    def test_a_batch_is_written_by_the_condition_that_it_was_decided_with(self, target):
        table = target(**UPDATES)
        table.put(table.sink(), [(1, "new", 7)], batch_id=0)
        late = table.decided_but_not_published(table.sink(), [(1, "late", 3)], batch_id=1)
        assert not table.rig.make(update_when="old.version > 0").publish(late).already
        assert content(table) == Counter([(1, "new")])
        assert table.verify(table.sink()).ok

    def test_an_older_penstock_publishes_nothing_that_may_be_decided_with_a_condition(self, target):
        table = target(**UPDATES)
        table.sink()
        assert table.sql("SELECT format_version FROM penstock_marker") == [(4,)]

    def test_a_row_of_the_user_that_is_compared_must_be_readable(self, target):
        table = target(**UPDATES)
        sink = table.sink()
        table.sql("INSERT INTO t VALUES (1, x'ff', 3)")
        decided = table.decided_but_not_published(sink, [(1, "a", 4)], batch_id=0)
        with pytest.raises(PublishFailed, match=r"a row under a key of this batch .* column 'name'"):
            sink.publish(decided)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"write": "insert_if_absent"}, "`update_when` is for `write: upsert`"),
            ({"update_when": "old.version >"}, "which ends too early"),
            ({"update_when": "old.when > 3"}, "names column 'old.when', but the rows have id, name, version"),
            ({"update_when": "old.name > 3"}, "whose operands cannot be compared"),
        ],
    )
    def test_conditions_that_cannot_be(self, target, options, said):
        with pytest.raises(Usage, match=said):
            target(**{**UPDATES, **options}).sink()
