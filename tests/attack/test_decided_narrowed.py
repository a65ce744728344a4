"""A batch is decided and not published, and by then columns of the table take less, where the database would say nothing."""

from collections import Counter

import pytest
from tests.attack.test_decided_columns import changing, kind, only, rows_of
from tests.servers.settings import set_globally

from penstock.errors import Refused

__all__ = ["changing", "kind"]

NUMBERED = {
    "key": "ALTER TABLE t MODIFY id BIGINT NOT NULL AUTO_INCREMENT, ADD KEY (id)",
    "primary key": "ALTER TABLE t MODIFY id BIGINT NOT NULL AUTO_INCREMENT, ADD PRIMARY KEY (id)",
}


@only("mysql")
@pytest.mark.parametrize("numbered", NUMBERED)
def test_mysql_makes_up_no_number_for_a_decided_null(changing, kind, numbered):
    table = changing()
    table.deliver((1, "a"))
    table.deliver((None, "b"), (3, "c"), killed=True)
    table.bench.rig.sql(NUMBERED[numbered])
    with pytest.raises(Refused, match="Column 'id' of table 't' takes no NULL, and rows of the decided batch have NULL there"):
        table.recover()
    table.started_by_the_book()
    assert rows_of(table) == Counter([(1, "a"), (None, "b"), (3, "c")])
    assert table.verify().ok


@only("mysql")
def test_a_decided_null_in_a_column_that_takes_none_is_told_with_what_to_run(changing, kind):
    table = changing()
    table.deliver((1, "a"))
    table.deliver((2, None), killed=True)
    table.bench.rig.sql("ALTER TABLE t MODIFY name VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
    with pytest.raises(Refused, match="Column 'name' of table 't' takes no NULL") as refused:
        table.recover()
    assert "MODIFY `name` varchar(9) COLLATE utf8mb4_general_ci NULL" in refused.value.remedy
    table.started_by_the_book()
    assert rows_of(table) == Counter([(1, "a"), (2, None)])
    assert table.verify().ok


@only("mysql")
@pytest.mark.parametrize("key", [[], ["id"]], ids=["copied", "by key"])
def test_mysql_cuts_no_blanks_off_a_decided_text_whatever_it_notes(changing, kind, key):
    table = changing(write="upsert" if key else "append", key=key)
    table.deliver((1, "a"))
    table.deliver((2, "b   "), killed=True)
    table.bench.rig.sql("ALTER TABLE t MODIFY name VARCHAR(2) CHARACTER SET utf8mb4")
    with set_globally(table.bench.rig, "sql_notes", 0):
        with pytest.raises(Refused, match="'name' of table 't' takes 2 characters, and a value of the decided batch has 4"):
            table.recover()
        table.started_by_the_book()
    assert rows_of(table) == Counter([(1, "a"), (2, "b   ")])
    assert table.verify().ok


@only("mysql")
def test_a_key_that_became_too_short_for_a_decided_text_is_told_with_what_to_run(changing, kind):
    table = changing(write="upsert", key=["name"])
    table.deliver((1, "a"))
    table.deliver((2, "b   "), killed=True)
    table.bench.rig.sql("ALTER TABLE t MODIFY name VARCHAR(2) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL")
    table.started_by_the_book()
    assert "takes 2 characters" in table.remedies[0]
    assert rows_of(table) == Counter([(1, "a"), (2, "b   ")])
    assert table.verify().ok
