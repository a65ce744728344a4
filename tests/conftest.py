"""For every layer: fast layers run first, Spark starts fast, and in CI a skipped test is a failed one.

Of the cases of a test that starts Spark a run draws a quarter; all run with PENSTOCK_SOAK_FAULTS=all, and where a file is named.
"""

import gc
import os
import sys
from pathlib import Path

import pytest
from pluggy import PluggyTeardownRaisedWarning

from tests import fast_spark
from tests.drawing import keep_some
from tests.failures import Failures
from tests.memory import give_back_memory, in_memory, remove_left_directories
from tests.seed import SEED
from tests.servers.server import await_installation
from tests.times import Computed, Times

LAYERS = ("unit", "architecture", "simulation", "live", "conformance", "attack", "upgrade", "mutation", "spark", "crash")
START_SPARK = {"spark", "crash"}
HANGS_AFTER_S = {"unit": 60, "architecture": 120, "live": 120}
"""Where a test takes milliseconds or seconds, a hang shall not cost the ten minutes that the other layers are given."""

NEED_NO_SERVER = {"unit", "architecture", "simulation"}
"""They run while servers are still being installed."""

CALL_KAFKA = {"live", "conformance", "attack", "spark", "crash"}
"""Where tests make Kafka clients in their own process."""

WITH_SPARK_ONE_IN = 4

IN_CI = os.environ.get("CI") == "true"


def pytest_configure(config: pytest.Config) -> None:
    if IN_CI:
        config.pluginmanager.register(Failures(config))
        config.pluginmanager.register(Times(lambda file: layer_of(config.rootpath / file)))
        if Path("/proc/stat").exists() and not config.getoption("numprocesses", None):  # a worker, or a run without any
            config.pluginmanager.register(Computed())
    memory = in_memory()
    if memory is not None:
        remove_left_directories(memory)
        os.environ.setdefault("PENSTOCK_SERVERS_DATA", str(memory))


def pytest_report_header() -> str:
    return f"PENSTOCK_SEED={SEED}"


def pytest_sessionfinish() -> None:
    """While the process still has time: one that runs tests beside another is killed if it takes long to exit."""
    fixtures = sys.modules.get("tests.servers.fixtures")
    if fixtures is not None:
        fixtures.stop_servers()
    shared_java = sys.modules.get("tests.crash.shared_java")
    if shared_java is not None:
        shared_java.stop()
    forked = sys.modules.get("tests.crash.forked")
    if forked is not None:
        forked.stop()


def layer_of(path: Path) -> str:
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return folder if folder in LAYERS else LAYERS[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LAYERS.index(layer_of(item.path)))
    for item in items:
        layer = layer_of(item.path)
        is_long = "PENSTOCK_SOAK_KILLS" in os.environ and item.get_closest_marker("campaign") is not None
        if layer in HANGS_AFTER_S and not is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_AFTER_S[layer]))
        if layer in {"spark", "crash", "mutation"}:
            item.add_marker(getattr(pytest.mark, layer))
    keep_some(config, items, one_in=WITH_SPARK_ONE_IN, of=_test_with_spark)


def _test_with_spark(item: pytest.Item) -> tuple[Path, str] | None:
    """The test that it is a case of."""
    if layer_of(item.path) not in START_SPARK or not hasattr(item, "callspec"):
        return None
    return item.path, getattr(item, "originalname", item.name)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Once the selection is known: does anything of it start Spark?

    All tests and modules stay until the end, so that collecting garbage among them again and again, and copying their pages in
    every forked process, would take a quarter of the time.
    """
    gc.collect()
    gc.freeze()
    if session.config.option.collectonly or not any(
        item.get_closest_marker(name) for item in session.items for name in START_SPARK
    ):
        return
    fast_spark.use(session.config.cache.mkdir("spark"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    """Wait for servers that are being installed, stop idle ones and give memory back after a file, and collect no garbage among
    Kafka clients.

    A client that collects itself, in the thread that runs its callbacks, aborts the process: confluent-kafka-python, #2131.
    """
    if layer_of(item.path) not in NEED_NO_SERVER:
        await_installation()  # before the test's own time begins
    collects = gc.isenabled()
    if layer_of(item.path) in CALL_KAFKA:
        gc.disable()
    try:
        return (yield)
    finally:
        fixtures = sys.modules.get("tests.servers.fixtures")
        ended = nextitem is not None and nextitem.path != item.path
        if fixtures is not None and ended:
            fixtures.stop_idle_servers()
        if collects:
            gc.collect(1)  # in this thread, before another one may
            gc.enable()
        if ended:
            give_back_memory()


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not IN_CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    report.outcome = "failed"
    report.longrepr = (
        f"skipped, which CI does not allow: {report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr}"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    try:
        report = yield
    except (SystemError, PluggyTeardownRaisedWarning):
        # Python 3.11 says SystemError where another thread parses source too, as each traceback does that it logs.
        report = pytest.TestReport.from_item_and_call(item, call)
    _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    _fail_in_ci(report)
    return report
