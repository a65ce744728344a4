"""No secret of a pipeline file is seen by others: a marker at every place is looked for wherever Spark and Penstock write."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.reading import ROOT

QUICK = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
PIPELINE = """
pipeline: hidden
home: state
spark:
  master: local[2]
  conf:
    spark.hadoop.fs.s3a.secret.key: ${SECRET_OF_CONF}
    spark.hadoop.fs.own.account: ${PLAIN_NAME}
    spark.hadoop.fs.own.password: mArKeR-literal-of-conf
    spark.sql.own.setting: "  pre=${SQL_SETTING}: \\u00fc\\\\n\\"x"
    spark.redaction.regex: (?i)mine|location
    spark.own.mine: mArKeR-that-the-users-own-pattern-hides
    spark.eventLog.enabled: true
    spark.eventLog.compress: false
    spark.eventLog.dir: EVENTS
    spark.ui.port: 0
    spark.sql.shuffle.partitions: 1
sources:
  rows:
    format: csv
    path: incoming
    schema: "id INT, text STRING"
    options: {header: true, maxFilesPerTrigger: 1, nullValue: "${SOURCE_OPTION}"}
  ticks:
    format: rate
    options: {rowsPerSecond: 1, password: mArKeR-literal-of-source}
transform:
  python: job:checked
sinks:
  lines: {python: "job:Kept", path: OUT, token: mArKeR-literal-of-sink, user: "${SINK_OPTION}"}
  lake:
    type: parquet
    accounts: {one: out/lake, two: out/other}
    route: {sql: "if(text = '${OF_ACCOUNT}', 'two', 'one')"}
    where: text <> '${OF_WHERE}'
    select: [id, "if(text = '${OF_SELECT}', '', text) AS text"]
  kept:
    type: sqlite
    url: sqlite:///out/kept.db
    table: kept
    write: upsert
    key: [id]
    delete_when: text = '${OF_DELETE}'
trigger: {available_now: true}
"""
JOB = """
from tests.conformance.lines_sink import Lines

class Kept(Lines):
    def __init__(self, path, token, user, **given):
        super().__init__(path, **given)

def checked(spark, sources):
    found = spark.conf.get("spark.sql.own.setting")
    assert found == '  pre=mArKeR-SQL_SETTING: \u00fc\\\\n"x', found
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.secret.key") == "mArKeR-SECRET_OF_CONF"
    return sources["rows"].union(sources["ticks"].where("value < 0").selectExpr("int(value)", "string(value)"))
"""
SECRETS = {name: f"mArKeR-{name}" for name in ("SECRET_OF_CONF", "PLAIN_NAME", "SQL_SETTING", "SOURCE_OPTION", "SINK_OPTION")}
MARKER = "mArKeR"
SECRETS_IN_SQL = {name: f"sQlMaRk-{name}" for name in ("OF_ACCOUNT", "OF_WHERE", "OF_SELECT", "OF_DELETE")}
IN_SQL = "sQlMaRk"


def project(directory: Path) -> Path:
    (directory / "events").mkdir()
    (directory / "incoming").mkdir()
    (directory / "out").mkdir()
    for number in range(2):
        (directory / "incoming" / f"{number}.csv").write_text(f"id,text\n{number},a\n")
    text = PIPELINE.replace("EVENTS", str(directory / "events")).replace("OUT", str(directory / "lines.db"))
    (directory / "pipeline.yaml").write_text(text)
    (directory / "job.py").write_text(JOB)
    return directory / "pipeline.yaml"


def watched_run(file: Path, seen: Path, **environment: str) -> Mapping[str, Sequence[str]]:
    """What was seen of a run of `file`."""
    given = {**os.environ, **SECRETS, **SECRETS_IN_SQL, "PYSPARK_SUBMIT_ARGS": QUICK, **environment}
    command = [sys.executable, "-m", "tests.spark.secrets_child", str(file), str(seen)]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [mark for mark in (MARKER, IN_SQL) if mark in done.stdout + done.stderr] == []
    found: Mapping[str, Sequence[str]] = json.loads(seen.read_text())
    return found


@pytest.fixture(name="ran", scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Sequence[str]]]:
    directory = tmp_path_factory.mktemp("hidden")
    return directory, watched_run(project(directory), tmp_path_factory.mktemp("seen") / "seen.json")


Ran = tuple[Path, Mapping[str, Sequence[str]]]


@pytest.mark.parametrize("place", ["command line", "environment", "ui"])
def test_nothing_that_others_can_look_at_holds_a_secret(ran: Ran, place: str) -> None:
    texts = [text for text in ran[1][place] if text.partition("=")[0] not in {*SECRETS, *SECRETS_IN_SQL}]
    assert len(texts) > 10
    assert [around(text) for text in texts if MARKER in text] == []


def test_no_file_of_a_run_holds_a_secret(ran: Ran) -> None:
    """Event log, Spark's log, ledger, spool, checkpoint, what is published."""
    given = {"pipeline.yaml", "job.py"}
    files = [file for file in ran[0].rglob("*") if file.is_file() and file.suffix != ".pyc" and file.name not in given]
    kinds = {file.relative_to(ran[0]).parts[0] for file in files}
    assert kinds == {"events", "incoming", "state", "out", "lines.db"}
    texts = {file.name: file.read_text(errors="replace") for file in files}
    assert {name: around(text) for name, text in texts.items() if MARKER in text} == {}
    events = {file.name for file in files if file.relative_to(ran[0]).parts[0] == "events"}
    assert {name: around(text, IN_SQL) for name, text in texts.items() if name not in events and IN_SQL in text} == {}


def test_no_text_of_a_plan_holds_a_value_in_sql(ran: Ran) -> None:
    """The tree of a plan does, as docs/SECURITY.md says: Spark redacts nothing there."""
    logs = [file.read_text(errors="replace") for file in (ran[0] / "events").rglob("*") if file.is_file()]
    lines = [line for log in logs for line in log.splitlines() if line.startswith("{")]
    events = [json.dumps(without_trees(json.loads(line))) for line in lines]
    described = [
        text for page in ran[1]["ui"] for text in (*re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL), *descriptions(page))
    ]
    assert sum(f"{'*' * 9}(redacted)" in text for text in events) > 1
    assert sum(f"{'*' * 9}(redacted)" in text for text in described) > 1
    assert [around(text, IN_SQL) for text in (*events, *described) if IN_SQL in text] == []


def descriptions(answer: str) -> Iterator[str]:
    """The texts of plans in an answer of Spark's REST interface."""
    if answer.lstrip().startswith("["):
        yield from (each["planDescription"] for each in json.loads(answer) if "planDescription" in each)


def without_trees(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_trees(item) for key, item in value.items() if key != "sparkPlanInfo"}
    return [without_trees(item) for item in value] if isinstance(value, list) else value


def test_the_jvm_listens_for_this_machine_only(ran: Ran) -> None:
    assert ran[1]["listens"]
    assert [each for each in ran[1]["listens"] if not is_loopback(each.split()[0])] == []


def is_loopback(address: str) -> bool:
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def around(text: str, mark: str = MARKER) -> str:
    where = text.find(mark)
    return text[max(0, where - 150) : where + 60]
