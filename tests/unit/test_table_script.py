"""SQL of the user's own, taken apart: no statement of it may end the transaction, wherever it hides."""

import pytest

from penstock.errors import Usage
from penstock.sink.mysql.statements import SYNTAX as MYSQL
from penstock.sink.postgres.statements import SYNTAX as POSTGRES
from penstock.sink.table.script import script_of

INSERT = "INSERT INTO {table} SELECT * FROM {staged}"
BOTH = pytest.mark.parametrize("dialect", [MYSQL, POSTGRES], ids=["mysql", "postgres"])


@BOTH
def test_names_take_the_place_of_placeholders_and_other_braces_stay(dialect):
    script = script_of(f"{INSERT} WHERE note <> '{{}}';\n UPDATE {{table}} SET a = '{{\"x\": 1}}' ; ", dialect)
    found = script.naming(staged="stage", table='"a b"')
    assert [statement.strip() for statement in found] == [
        "INSERT INTO \"a b\" SELECT * FROM stage WHERE note <> '{}'",
        'UPDATE "a b" SET a = \'{"x": 1}\'',
    ]


@BOTH
@pytest.mark.parametrize(
    "hidden", ["-- {staged} {table}\n", "/* {staged} {table} */", "'{staged} {table}'", '"{staged} {table}"']
)
def test_no_name_takes_the_place_of_what_only_looks_like_a_placeholder(dialect, hidden):
    [found] = script_of(f"{INSERT} WHERE note <> {hidden} || name", dialect).naming(staged="stage", table="t")
    assert found == f"INSERT INTO t SELECT * FROM stage WHERE note <> {hidden} || name"


@BOTH
@pytest.mark.parametrize("hidden", ["-- from {staged}\n", "/* {staged} */", "'{staged}'", '"{staged}"'])
def test_staged_rows_that_only_a_comment_or_a_quoted_part_names_are_read_by_nothing(dialect, hidden):
    with pytest.raises(Usage, match=r"has 2 statements, none of which names \{staged\} outside of comments and quotes"):
        script_of(f"INSERT INTO {{table}} SELECT {hidden} 1; DELETE FROM {{table}}", dialect)


@BOTH
@pytest.mark.parametrize(
    "hidden",
    [
        "-- it's; COMMIT\n",
        "/* it's; COMMIT */",
        "/* one * two / three ** */",
        "/**/",
    ],
)
def test_what_is_in_a_comment_says_nothing(dialect, hidden):
    assert len(script_of(f"{hidden}{INSERT}; {hidden}", dialect).statements) == 1
    assert len(script_of(f"{INSERT} {hidden} WHERE true;{hidden}{INSERT}{hidden}", dialect).statements) == 2


@pytest.mark.parametrize(
    ("dialect", "quoted"),
    [
        *((dialect, quoted) for dialect in (MYSQL, POSTGRES) for quoted in ("''", "'it''s; COMMIT'", "'-- '", "'/*'", "'$$'")),
        *((dialect, '"a;""b"') for dialect in (MYSQL, POSTGRES)),
        *((MYSQL, quoted) for quoted in (r"'it\'s; COMMIT'", r"'\\'", '"it\'s; \\" COMMIT"', "`a;``b`", "# it's; COMMIT\n'x'")),
        *((POSTGRES, quoted) for quoted in (r"'\'", r"E'it\'s; COMMIT'", r"e'\\'", "$$it's; COMMIT$$", "$a$ $$; $b$ ; $a$")),
        (POSTGRES, "a$b$c; INSERT INTO t VALUES ('$b$')"),
        (MYSQL, "1--1; INSERT INTO t VALUES ('--1')"),
    ],
)
def test_what_is_quoted_says_nothing(dialect, quoted):
    text = f"{INSERT} WHERE {quoted} = name"
    assert len(script_of(text, dialect).statements) == 1 + quoted.count("; INSERT")


@BOTH
@pytest.mark.parametrize(
    "bad",
    [
        *(
            "COMMIT",
            "commit work",
            "ROLLBACK",
            "BEGIN",
            "START TRANSACTION",
            "SAVEPOINT a",
            "PREPARE TRANSACTION 'a'",
            "END",
            "ABORT",
        ),
        *("SET autocommit = 1", "CREATE TABLE x (a int)", "DROP TABLE x", "TRUNCATE t", "LOCK TABLES t WRITE", "CALL ends_it()"),
        *(
            "DO $$ BEGIN COMMIT; END $$",
            "SELECT 1",
            "EXPLAIN SELECT 1",
            "VACUUM",
            "(COMMIT)",
            "/* a */ COMMIT",
            "-- a\nCOMMIT",
            "1",
        ),
    ],
)
def test_a_statement_of_another_kind_is_refused_wherever_it_is(dialect, bad):
    for text in (bad, f"{INSERT}; {bad}", f"{bad}; {INSERT}", f"{INSERT};;{bad};"):
        with pytest.raises(Usage, match=r"A statement of `merge` begins with .*, expected one of DELETE, INSERT"):
            script_of(text, dialect)


@pytest.mark.parametrize(
    ("dialect", "text", "said"),
    [
        (MYSQL, f"/*! COMMIT */ {INSERT}", r"has '/\*!' at character 1"),
        (MYSQL, f"{INSERT} /*M! ; COMMIT */", r"has '/\*M!' at character"),
        (MYSQL, f"{INSERT} /*!50000 ; COMMIT */", r"has '/\*!' at character"),
        *((dialect, f"{INSERT} WHERE a = 'it", 'has "\'" at character') for dialect in (MYSQL, POSTGRES)),
        *((dialect, f"{INSERT} /* never", r"has '/\*' at character") for dialect in (MYSQL, POSTGRES)),
        (MYSQL, f"{INSERT} `", "has '`' at character"),
        (POSTGRES, f"{INSERT} /* a /* b */ */", r"has '/\*' at character"),
        (POSTGRES, f"{INSERT} $a$ $b$", r"has '\$a\$' at character"),
        *(
            (dialect, "INSERT INTO {table} VALUES (1)", "has 1 statements, none of which names {staged}")
            for dialect in (MYSQL, POSTGRES)
        ),
        *((dialect, " ;; -- a", "has 0 statements, none of which names {staged}") for dialect in (MYSQL, POSTGRES)),
    ],
)
def test_what_cannot_be_read_is_refused(dialect, text, said):
    with pytest.raises(Usage, match=said):
        script_of(text, dialect)
