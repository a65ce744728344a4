"""What people read when a pipeline file is wrong: the whole text, since it is all they have."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.spec import sink
from penstock.spec.load import load

TOP = "pipeline: flights\nhome: ./state\n"
SOURCES = "sources:\n  flights: {format: rate}\n"
SINKS = "sinks:\n  lake:\n    type: parquet\n    accounts: {EWR: ./ewr, JFK: ./jfk}\n    route: {column: origin}\n"
PARQUET_KEYS = (
    "The keys here are: type, accounts, route, unrouted, partition_by, compression, column_encoding, dictionary_pagesize_limit, "
    "target_file_size, existing_rows, where, select, exclude."
)
ENCODINGS = "dictionary, plain, delta_binary_packed, delta_byte_array, delta_length_byte_array or byte_stream_split"
EVERY_KEY = (
    "pipeline, home, guarantee, spark, receive, sources, transform, sinks, quarantine, output_mode, trigger, checkpoint, ledger"
)
TOP_KEYS = f"The keys here are: {EVERY_KEY}, spool, publish_behind, retry_timeout, metrics."
NAME = "a name of at most 100 letters, digits, hyphens, dots and underscores"
VIEW = "a name of at most 100 letters, digits and underscores, since SQL reads it"
WHOLE = "in complete mode every batch is the whole result"
OWN = "Give each a directory of its own."
LEDGER_AROUND = f"ledger ({{here}}/state) overlaps with checkpoint ({{here}}/state/checkpoint). {OWN}"
SPOOL_INSIDE = f"spool ({{here}}/state/spool) overlaps with ledger ({{here}}/state). {OWN}"
ONE_STAMP = "in Cassandra the later batch always wins: all of its rows have one time stamp"
TYPES = f"This version has the types {', '.join(sink.SUPPORTED)}, and python: package.module:Class."


def lake(*lines: str) -> str:
    return "sinks:\n  lake:\n" + "".join(f"    {line}\n" for line in lines)


def mistake(directory: Path, text: str, overrides: Sequence[str] = ()) -> Usage:
    (directory / "f.yaml").write_text(text)
    with pytest.raises(Usage) as caught:
        load("f.yaml", overrides)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.fixture(autouse=True)
def _in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOPE", raising=False)


STORES_OR_DIRECTORIES = (
    "This version supports directories on this machine or mounted on it: a path or file:///path, and stores: s3://bucket/prefix, "
    "az://container@account/prefix, gs://bucket/prefix or hdfs://namenode:8020/prefix."
)
SINK_MISTAKES = [
    (
        lake("type: parquet", "accounts: {EWR: 'https://a.blob.core.windows.net/c/x?sig=geheim'}"),
        "f.yaml:8: sinks.lake.accounts.EWR is at https://, which is not supported by this version.",
        STORES_OR_DIRECTORIES,
    ),
    (
        lake("type: parquet", "accounts: {EWR: 'az://c@a/x?sv=1&sig=geheim'}"),
        "f.yaml:8: sinks.lake.accounts.EWR is no URL of a place at az://.",
        "Give a SAS as the option sas_token.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: 's3//bucket/x'}"),
        "f.yaml:8: sinks.lake.accounts.EWR begins with s3//, which is neither a URL nor likely a directory.",
        "Write s3://, or ./s3//.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: 'gs:/bucket/x'}"),
        "f.yaml:8: sinks.lake.accounts.EWR begins with gs:, which is neither a URL nor likely a directory.",
        "Write gs://, or ./gs:.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "partiton_by: [month]"),
        "f.yaml:9: sinks.lake.partiton_by is not a known key.",
        f"Did you mean partition_by? {PARQUET_KEYS}",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "partition_by: month"),
        "f.yaml:9: sinks.lake.partition_by should be a list, found the text 'month'.",
        "Write it as [a, b] or as lines that start with a hyphen.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "partition_by: [a, 5]"),
        "f.yaml:9: sinks.lake.partition_by[1] should be text, found the number 5.",
        "Put the value in quotes if it is meant as text.",
    ),
    (
        lake("type: sqlite", "url: sqlite:///x.db", "table: t", "create: yes"),
        "f.yaml:10: sinks.lake.create should be true or false, found the text 'yes'.",
        "Write true or false without quotes.",
    ),
    (lake("type: parquet"), "f.yaml:6: sinks.lake.accounts is missing.", "Add the key accounts."),
    (
        lake("type: parquet", "accounts: {EWR: 5}"),
        "f.yaml:8: sinks.lake.accounts.EWR should be a URL, found the number 5.",
        "Write a URL, or a mapping of url and options.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr, JFK: ./jfk}"),
        "f.yaml:6: sinks.lake.route is missing, but there are 2 accounts (EWR, JFK).",
        "Add route: {column: name}, {hash: [columns]} or {sql: expression}.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr, JFK: ./jfk}", "route: {column: origin}", "unrouted: EWRR"),
        "f.yaml:10: sinks.lake.unrouted names no account, found the text 'EWRR'.",
        "Did you mean EWR? Use fail, quarantine or one of EWR, JFK.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "unrouted: quarantine"),
        "f.yaml:9: sinks.lake.unrouted is quarantine, and the pipeline has none.",
        "Add quarantine: ./quarantine, a directory or a URL of a store.",
    ),
    (
        lake("type: parquet", "accounts: {fail: ./ewr}"),
        "f.yaml:8: sinks.lake.accounts.fail is a word that unrouted uses.",
        "Give the account another name.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "route: {column: origin, sql: a}"),
        "f.yaml:9: sinks.lake.route has column and sql.",
        "Give exactly one of column, hash, sql.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "route: {hash: []}"),
        "f.yaml:9: sinks.lake.route.hash should name at least one column.",
        "Write hash: [column].",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "compression: zst"),
        "f.yaml:9: sinks.lake.compression should be zstd, snappy, gzip, lz4, brotli or none, found the text 'zst'.",
        "Use one of zstd, snappy, gzip, lz4, brotli or none.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "column_encoding: dict"),
        "f.yaml:9: sinks.lake.column_encoding should be auto, dictionary, plain or a mapping of columns, found the text 'dict'.",
        "Write column_encoding: auto, or {column: encoding} for some columns.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "column_encoding: {id: delta}"),
        f"f.yaml:9: sinks.lake.column_encoding.id should be {ENCODINGS}, found the text 'delta'.",
        f"Use one of {ENCODINGS}.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./ewr}", "target_file_size: 1 elephant"),
        "f.yaml:9: sinks.lake.target_file_size should be a size with a unit, found the text '1 elephant'.",
        "Write it like 128MB, 64MiB or 1GB.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: s3://key:geheim@bucket/x}"),
        "f.yaml:8: sinks.lake.accounts.EWR is no URL of a place at s3://.",
        "Write s3://bucket/prefix.",
    ),
    (
        lake("type: mysql", "url: mysql://ann:geheim@host", "table: t"),
        "f.yaml:8: sinks.lake.url should be a MySQL URL with a database, found mysql://….",
        "Write mysql://user:password@host:3306/database, the password best as ${VARIABLE}.",
    ),
    (
        lake("type: mysql", "url: mysql://ann:geheim@host/db", "table: t")
        + "  other:\n    type: mysql\n    url: mariadb://ann:geheim@host/db\n    table: T\n",
        "f.yaml:13: sinks.other.table (T in mariadb://ann:***@host/db) is also the table of sinks.lake.",
        "Give each sink a table of its own.",
    ),
    (
        lake("type: postgres", "url: postgresql://ann:geheim@host", "table: t"),
        "f.yaml:8: sinks.lake.url should be a PostgreSQL URL with a database, found postgresql://….",
        "Write postgresql://user:password@host:5432/database, the password best as ${VARIABLE}.",
    ),
    (
        lake("type: postgres", "url: postgresql://ann:geheim@host/db", "table: t", "write: upsert"),
        "f.yaml:6: sinks.lake.key is missing, but write: upsert needs it.",
        "Add key: [columns that identify a row].",
    ),
    (
        lake("type: postgres", "url: postgresql://ann:geheim@host/db", "table: t")
        + "  other:\n    type: postgres\n    url: postgresql://ann:geheim@host/db\n    table: public.t\n",
        "f.yaml:13: sinks.other.table (public.t in postgresql://ann:***@host/db) is also the table of sinks.lake.",
        "Give each sink a table of its own.",
    ),
    (
        lake("type: parqet"),
        "f.yaml:7: sinks.lake.type is no type of sink, found the text 'parqet'.",
        f"Did you mean parquet? {TYPES}",
    ),
    (lake("url: x"), "f.yaml:6: sinks.lake.type is missing.", f"Add one: {TYPES}"),
    (
        lake("python: my.sinks.Mine"),
        "f.yaml:7: sinks.lake.python should be module:object, found the text 'my.sinks.Mine'.",
        "Write it like mypkg.jobs:clean.",
    ),
    (
        lake("type: sqlite", "url: sqlite:///x.db", "table: t", "write: upsert"),
        "f.yaml:6: sinks.lake.key is missing, but write: upsert needs it.",
        "Add key: [columns that identify a row].",
    ),
    (
        lake("type: sqlite", "url: sqlite:///x.db", "table: t", "sequence_by: at"),
        "f.yaml:10: sinks.lake.sequence_by is given, but write is append.",
        "Set write: upsert, with a key, or leave it out.",
    ),
    (
        lake("type: duckdb", "url: duckdb:///x.db", "table: t", "write: upsert", "key: [id]", "sequence_by: id"),
        "f.yaml:12: sinks.lake.sequence_by names 'id', a column of the key, which is the same in all rows that are compared.",
        "Name the column that grows with each change of a row.",
    ),
    (
        lake("type: cassandra", "url: cassandra://host/shop", "table: t", "key: [id]", "sequence_by: at"),
        f"f.yaml:11: sinks.lake.sequence_by is given, but {ONE_STAMP}.",
        "Leave it out, or write into a table of a SQL database, of Delta or of Iceberg.",
    ),
    (
        lake("type: sqlite", "url: sqlite:///x.db", "table: t", "write: replace"),
        "f.yaml:10: sinks.lake.write does not go with output_mode: append: replace would keep the last batch only.",
        "Use write: append or upsert, or output_mode: complete.",
    ),
    (
        "sinks:\n  lake: parquet\n",
        "f.yaml:6: sinks.lake should be a mapping, found the text 'parquet'.",
        "Write it as {key: value}, or as key: value lines, indented below the key.",
    ),
    ("sinks: {}\n", "f.yaml:5: sinks is empty.", "Give it a value."),
    (
        f"{SINKS}on_event: {{pager: {{url: 'http://h', signing_secret: geheim}}}}\n",
        "f.yaml:10: on_event.pager.signing_secret should have 16 characters or more, found 6.",
        "Give it a longer value.",
    ),
    (
        f"{SINKS}on_event: {{pager: {{url: 'http://h', events: [fail]}}}}\n",
        "f.yaml:10: on_event.pager.events[0] should be failed, fenced, stalled or recovered, found the text 'fail'.",
        "Use one of failed, fenced, stalled or recovered.",
    ),
    (
        f"{SINKS}on_event: {{url: 'http://h/geheim'}}\n",
        "f.yaml:10: on_event.url stands where the name of a target belongs.",
        "Write on_event: {pager: {url: …}}.",
    ),
    (
        f"{SINKS}opentelemetry: {{endpoint: 'http://h:4318', ca_file: ./ca.pem}}\n",
        "f.yaml:10: opentelemetry.ca_file is given, but the URL begins with http://, where nothing is encrypted.",
        "Write https://, or take ca_file out.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./out, JFK: ./out/jfk}", "route: {column: origin}"),
        "f.yaml:8: sinks.lake.accounts.JFK (file://{here}/out/jfk) overlaps with sinks.lake.accounts.EWR (file://{here}/out).",
        "Give each a directory of its own.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./out, JFK: ./x/../out}", "route: {column: origin}"),
        "f.yaml:8: sinks.lake.accounts.JFK (file://{here}/out) is the same place as sinks.lake.accounts.EWR (file://{here}/out).",
        "Give each a directory of its own.",
    ),
    (
        lake("type: parquet", "accounts: {EWR: ./state/spool/x}"),
        "f.yaml:8: sinks.lake.accounts.EWR (file://{here}/state/spool/x) overlaps with spool ({here}/state/spool).",
        "Give each a directory of its own.",
    ),
    (
        lake("type: sqlite", "url: sqlite:///x.db", "table: t")
        + "  other:\n    type: sqlite\n    url: sqlite:///./x.db\n    table: T\n",
        "f.yaml:13: sinks.other.table (T in {here}/x.db) is also the table of sinks.lake.",
        "Give each sink a table of its own.",
    ),
]


@pytest.mark.parametrize(("sinks", "message", "remedy"), SINK_MISTAKES)
def test_mistakes_in_sinks(tmp_path: Path, sinks: str, message: str, remedy: str) -> None:
    error = mistake(tmp_path, TOP + SOURCES + sinks)
    assert error.message == message.replace("{here}", str(tmp_path))
    assert error.remedy == remedy


OTHER_MISTAKES = [
    (
        TOP + SOURCES + SINKS + "chekpoint: ./x\n",
        "f.yaml:10: chekpoint is not a known key.",
        "Did you mean checkpoint?",
    ),
    ("home: ./state\n" + SOURCES + SINKS, "f.yaml:1: pipeline is missing.", "Add the key pipeline."),
    (
        TOP.replace("flights", "fli/ghts") + SOURCES + SINKS,
        f"f.yaml:1: pipeline should be {NAME}, found the text 'fli/ghts'.",
        "Write it like flights-eu.",
    ),
    (
        TOP.replace("flights", "2026") + SOURCES + SINKS,
        "f.yaml:1: pipeline should be text, found the number 2026.",
        "Put the value in quotes if it is meant as text.",
    ),
    (
        TOP + SOURCES + SINKS + "transform:\n  sql: SELECT ${NOPE}\n",
        "f.yaml:11: transform.sql needs the environment variable NOPE, which is not set.",
        "Set NOPE, or write ${NOPE:-default}.",
    ),
    (
        TOP + SOURCES + SINKS + "transform:\n  sql: SELECT ${a.b}\n",
        "f.yaml:11: transform.sql holds ${a.b}, which is no reference to an environment variable.",
        "Write ${NAME} or ${NAME:-default}; write $${ for a plain ${.",
    ),
    (
        TOP + SOURCES + SINKS + "transform: {sql: SELECT 1, python: 'a:b'}\n",
        "f.yaml:10: transform has both sql and python.",
        "Keep exactly one of them, or leave transform out to pass the rows on as they are.",
    ),
    (
        TOP + "sources:\n  a: {format: rate}\n  b: {format: rate}\n" + SINKS,
        "f.yaml:1: transform is missing, but there are 2 sources (a, b).",
        "Add transform: {sql: …} that joins or unites them.",
    ),
    (
        TOP + "sources:\n  a: {format: csv}\n" + SINKS,
        "f.yaml:4: sources.a reads files (csv) but has no path.",
        "Add path: ./incoming.",
    ),
    (
        TOP + "sources:\n  a: {}\n" + SINKS,
        "f.yaml:4: sources.a has neither format nor table.",
        "Add format: csv (or another format), or table: name.",
    ),
    (
        TOP + "sources:\n  a b: {format: rate}\n" + SINKS,
        f"f.yaml:4: sources.a b should be {VIEW}, found the text 'a b'.",
        "Write it like late_flights.",
    ),
    (
        TOP + "sources:\n  a: {format: json, path: ./ewr/in, schema: a INT}\n" + SINKS,
        "f.yaml:4: sources.a.path ({here}/ewr/in) overlaps with sinks.lake.accounts.EWR (file://{here}/ewr).",
        "Give each a directory of its own.",
    ),
    (
        TOP + SOURCES + SINKS + "output_mode: complete\n",
        f"f.yaml:7: sinks.lake.type does not go with output_mode: complete: {WHOLE}, and parquet can only append.",
        "Use output_mode: append, or a sink that replaces or upserts.",
    ),
    (
        TOP + SOURCES + SINKS + "trigger: {once: true, available_now: true}\n",
        "f.yaml:10: trigger has available_now and once.",
        (
            "Give exactly one of processing_time, available_now, once, continuous, real_time. "
            "On the command line, `--set 'trigger={available_now: true}'` replaces what the file has."
        ),
    ),
    (
        TOP + SOURCES + SINKS + "trigger: {}\n",
        "f.yaml:10: trigger is empty.",
        "Give exactly one of processing_time, available_now, once, continuous, real_time.",
    ),
    (
        TOP + SOURCES + SINKS + "trigger: {available_now: false}\n",
        "f.yaml:10: trigger.available_now should be true, found false.",
        "Write true, or leave the key out.",
    ),
    (
        TOP + SOURCES + SINKS + "trigger: {processing_time: 10}\n",
        "f.yaml:10: trigger.processing_time should be a duration with a unit, found the number 10.",
        "Write it like 10s, 500ms or 5m.",
    ),
    (
        TOP + SOURCES + SINKS + "guarantee: exactly-once\n",
        "f.yaml:10: guarantee should be exactly_once or at_least_once, found the text 'exactly-once'.",
        "Use one of exactly_once or at_least_once.",
    ),
    (
        TOP + SOURCES + SINKS + "ledger: redis://host/db\n",
        "f.yaml:10: ledger is at redis://, which is not supported by this version.",
        "Keep the ledger in a SQLite file (sqlite:///path), a directory, or at postgresql://, mysql://, s3://, az://, gs://, hdfs://.",
    ),
    (
        TOP + SOURCES + SINKS + "ledger: ./state\n",
        f"f.yaml has 2 mistakes:\n  f.yaml:10: {LEDGER_AROUND}\n  f.yaml:1: {SPOOL_INSIDE}",
        "Correct them and run `penstock check` again.",
    ),
    (TOP + SOURCES + SINKS + "home: ./x\n", "f.yaml:10: home is given twice, first in line 2.", "Keep one of the two."),
    (
        TOP + SOURCES + SINKS + "transform:\n\tsql: x\n",
        "f.yaml:11: not valid YAML: while scanning for the next token found character '\\t' that cannot start any token.",
        "Check the indentation, quotes and colons of this line and the one before.",
    ),
    (
        TOP + SOURCES + SINKS + "trigger: {processing_time: ${NOPE}}\n",
        "f.yaml:10: not valid YAML: while parsing a flow mapping expected ',' or '}', but got '{'.",
        "Inside { } and [ ] a reference needs quotes: {url: '${VAR}'}.",
    ),
    ("", "f.yaml:1: a pipeline file should be a mapping of keys, found nothing.", "Start from `penstock init`."),
    ("- a\n", "f.yaml:1: a pipeline file should be a mapping of keys, found a list.", "Start from `penstock init`."),
    (TOP + "spark: &a {conf: *a}\n" + SOURCES + SINKS, "f.yaml:3: spark.conf contains itself.", "Remove the YAML alias."),
]


@pytest.mark.parametrize(("text", "message", "remedy"), OTHER_MISTAKES)
def test_other_mistakes(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    error = mistake(tmp_path, text)
    assert error.message == message.replace("{here}", str(tmp_path))
    assert error.remedy == remedy


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    error = mistake(
        tmp_path, TOP + SOURCES + lake("type: parquet", "accounts: {E: 5}", "partition_by: x") + "spoool: x\ntriger: y\n"
    )
    assert error.message.splitlines()[0] == "f.yaml has 2 mistakes:"
    assert [line.split(" is ")[0].strip() for line in error.message.splitlines()[1:]] == [
        "f.yaml:10: spoool",
        "f.yaml:11: triger",
    ]


@pytest.mark.parametrize(
    ("override", "message", "remedy"),
    [
        (
            "trigger.processing_tim=10s",
            "--set trigger.processing_tim: trigger.processing_tim is not a known key.",
            "Did you mean processing_time? The keys here are: processing_time, available_now, once, continuous, real_time.",
        ),
        ("home", "--set should be key=value, found a text without =.", "Write it like --set trigger.processing_time=10s."),
        ("a..b=1", "--set should be key=value, found the key 'a..b'.", "Write it like --set trigger.processing_time=10s."),
        ("home.x=1", "--set home.x: home is a single value, nothing below it is called x.", "Correct the key path."),
        (
            "home=[",
            "--set home: the value is not valid YAML: expected the node content, but found '<stream end>'.",
            "Put it in quotes if it is meant as text.",
        ),
        (
            "pipeline=5",
            "--set pipeline: pipeline should be text, found the number 5.",
            "Put the value in quotes if it is meant as text.",
        ),
    ],
)
def test_mistakes_in_overrides(tmp_path: Path, override: str, message: str, remedy: str) -> None:
    error = mistake(tmp_path, TOP + SOURCES + SINKS, [override])
    assert (error.message, error.remedy) == (message, remedy)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("pipeline: \xe9t\xe9".encode("latin-1"))
    for name, message in (
        ("none.yaml", "There is no pipeline file none.yaml."),
        (".", ". is a directory, not a pipeline file."),
        ("latin.yaml", "latin.yaml is not UTF-8 text (byte 10)."),
    ):
        with pytest.raises(Usage) as caught:
            load(name)
        assert caught.value.message == message
