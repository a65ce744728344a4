"""From `python: module:Class` to a sink: what people read when it does not fit."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest

import penstock
from penstock.core.model import PipelineName, SinkName
from penstock.errors import Failed, PenstockError, Usage
from penstock.run.assembly import sinks_of
from penstock.run.pipeline import Pipeline
from penstock.run.user_sink import ImportCheck, import_checks
from penstock.sink.own import OwnSink

PIPELINE = """
pipeline: p
home: ./state
sources:
  rows: {{format: csv, path: ./incoming, schema: "id INT"}}
sinks:
  mine: {{{sink}}}
"""
GOOD = """
from penstock import OwnSink

class Mine(OwnSink):
    where = "nowhere"

    def __init__(self, depth, wide=False, **given):
        super().__init__(**given)
        self.depth, self.wide = depth, wide

    def exists(self): ...
    def create(self, schema): ...
    def transaction(self): ...
    def read_mark(self, transaction, key): ...
    def write_mark(self, transaction, key, mark): ...
    def write_rows(self, transaction, batch): ...
    def read_rows(self, transaction, schema): ...
"""


@pytest.fixture(name="modules")
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("mine", None)


def made(modules: Path, sink: str, code: str = GOOD):
    (modules / "mine.py").write_text(code)
    (modules / "p.yaml").write_text(PIPELINE.format(sink=sink))
    [sink] = sinks_of(Pipeline.from_file(modules / "p.yaml").plan)
    return sink


def test_options_reach_the_class(modules):
    sink = made(modules, "python: 'mine:Mine', depth: 3, wide: true")
    assert isinstance(sink, OwnSink)
    assert (sink.name, sink.depth, sink.wide, sink.kind.value) == ("mine", 3, True, "transactional")
    assert sink.describe()["publish"] == "one transaction: rows and mark, into nowhere by mine.Mine"


def in_code(modules: Path, sink: object, name: str = "mine"):
    [made] = sinks_of(penstock.Delivery("p", home=modules / "state", sinks={name: sink}).plan)
    return made


@pytest.fixture(name="mine")
def _mine(modules: Path):
    """The class, as code that imports it has it."""
    (modules / "mine.py").write_text(GOOD)
    sys.path.insert(0, str(modules))
    return importlib.import_module("mine").Mine


def test_an_object_is_given_the_rest_and_stays_as_it_is(modules, mine):
    given = mine(3, wide=True)
    sinks = [in_code(modules, given, name) for name in ("one", "other")]
    assert [(sink.name, sink.depth, sink.wide) for sink in sinks] == [("one", 3, True), ("other", 3, True)]
    assert vars(given).keys() == {"depth", "wide", "_inline_limit_bytes"}
    assert sinks[0].describe()["publish"] == "one transaction: rows and mark, into nowhere by mine.Mine"


def test_an_object_travels_with_its_delivery(modules, mine):
    delivery = pickle.loads(pickle.dumps(penstock.Delivery("p", home=modules, sinks={"mine": mine(3)})))
    [sink] = sinks_of(delivery.plan)
    assert (sink.name, sink.depth) == ("mine", 3)


def test_a_class_is_given_its_options(modules, mine):
    assert in_code(modules, penstock.PythonSink(python=mine, depth=3)).depth == 3


def test_the_ledger_is_told_of_an_object_as_of_its_class(modules, mine):
    """What the settings show tells where they changed, and nothing of it is an address in memory."""
    by_name = penstock.PythonSink(python="mine:Mine")
    assert by_name.shown() == penstock.PythonSink(python=mine).shown() == penstock.PythonSink(python=mine(3)).shown()


def test_an_object_that_cannot_be_given_the_rest_is_told(modules, mine):
    with pytest.raises(Usage, match=r"sinks\.mine\.python: the option 'depth' is given beside an object of mine:Mine\."):
        in_code(modules, penstock.PythonSink(python=mine(3), depth=4))
    other = type("Other", (), {"stager": print, "publish": print})
    with pytest.raises(Usage, match=r"an object of .*:Other was given, which is not derived from penstock\.OwnSink\."):
        in_code(modules, other())
    with pytest.raises(Usage, match=r"sinks\.mine should be a mapping"):
        in_code(modules, 3)
    with pytest.raises(Usage, match=r"PythonSink: python should be a text, found the number 3\."):
        penstock.PythonSink(python=3)  # type: ignore[arg-type]


def test_executors_are_not_asked_for_what_a_script_defines(modules, mine, monkeypatch):
    monkeypatch.setattr("penstock.run.user_sink.loaded_beside", frozenset)
    mine.row_check = lambda _: print
    checking = {SinkName("mine"): in_code(modules, mine(3))}
    settings = {"mine": penstock.PythonSink(python=mine(3))}
    assert len(list(import_checks(checking, settings))) == 1
    mine.__module__ = "__main__"
    assert list(import_checks(checking, settings)) == []


WRONG = [
    ("python: 'nosuch:Mine'", GOOD, Usage, "there is no module nosuch. Put nosuch.py into {modules}, "),
    ("python: 'mine:Mone'", GOOD, Usage, "module mine ({modules}/mine.py) has no Mone. It has Mine."),
    ("python: 'mine:Mine'", "Mine = 3", Usage, "mine:Mine is a value of type int, expected a class. "),
    (
        "python: 'mine:Mine'",
        "1 / 0",
        Failed,
        "importing mine raised ZeroDivisionError at {modules}/mine.py line 1: ",
    ),
    ("python: 'mine:Mine'", GOOD, Usage, "the option 'depth' is missing. Its options are: depth, wide."),
    (
        "python: 'mine:Mine', depth: 3, deep: 4",
        GOOD,
        Usage,
        "'deep' is no option of it. Its options are: depth, wide.",
    ),
    (
        "python: 'mine:Mine', depth: 3, spool: x",
        GOOD,
        Usage,
        "'spool' is no option, since Penstock gives it. ",
    ),
    (
        "python: 'mine:Mine', depth: 3",
        GOOD.replace("    def read_mark", "    def read_mork"),
        Usage,
        "mine:Mine is no sink, since it lacks read_mark. Derive the class from penstock.OwnSink ",
    ),
    (
        "python: 'mine:Mine'",
        "class Mine:\n  def __init__(self, **given): ...\n  name = kind = exactly_once = route_sql = accounts = describe = 1",
        Usage,
        "mine:Mine is no sink, since it lacks check, prepare, stager, publish, sweep, verify, close. ",
    ),
    (
        "python: 'mine:Mine'",
        (
            "class Mine:\n  def __init__(self, **given): ...\n  name = kind = exactly_once = route_sql = accounts = 1\n"
            "  describe = check = prepare = stager = publish = sweep = verify = close = claim = lifecycle = 1"
        ),
        Usage,
        "mine:Mine has claim, lifecycle of HasStaging, but lacks task_checks, signatures, sign, waiting. Define all members of ",
    ),
    (
        "python: 'mine:Mine'",
        (
            "from penstock.protocols import HasStaging\n"
            "class Mine(HasStaging):\n  def __init__(self, **given): ...\n"
            "  name = kind = exactly_once = route_sql = accounts = 1\n"
            "  describe = check = prepare = stager = publish = sweep = verify = close = sign = 1"
        ),
        Usage,
        "mine:Mine has sign of HasStaging, but lacks task_checks, signatures, claim, waiting, lifecycle. ",
    ),
    (
        "python: 'mine:Mine'",
        "class Mine:\n  def __init__(self, name): ...",
        Usage,
        "it is given name, pipeline, spool, but its __init__ does not take 'pipeline'. ",
    ),
    (
        "python: 'mine:Mine', depth: no number",
        GOOD.replace("self.depth, self.wide = depth, wide", "self.depth = int(depth)"),
        Failed,
        "mine:Mine raised ValueError at {modules}/mine.py line 9: invalid literal for int() ",
    ),
]


@pytest.mark.parametrize(("sink", "code", "kind", "said"), WRONG)
def test_a_class_that_does_not_fit_is_told(modules: Path, sink: str, code: str, kind: type[PenstockError], said: str) -> None:
    with pytest.raises(PenstockError) as refused:
        made(modules, sink, code)
    assert type(refused.value) is kind
    assert str(refused.value).startswith("sinks.mine.python: " + said.format(modules=modules))


def test_executors_are_asked_for_what_they_need(modules, monkeypatch):
    """Nothing of an OwnSink runs there but its check of rows; modules beside the pipeline file travel with the query."""
    sink = made(modules, "python: 'mine:Mine', depth: 3")
    plan = Pipeline.from_file(modules / "p.yaml").plan
    checking = {
        SinkName("mine"): type("Checking", (type(sink),), {"row_check": lambda _: print})(
            depth=1, name="mine", pipeline=PipelineName("p"), spool=str(modules)
        )
    }
    assert list(import_checks(checking, plan.settings.sinks)) == []
    monkeypatch.setattr("penstock.run.user_sink.loaded_beside", frozenset)
    assert list(import_checks({SinkName("mine"): sink}, plan.settings.sinks)) == []
    [check] = import_checks(checking, plan.settings.sinks)
    assert [finding.ok for finding in check.findings()] == [True]
    [finding] = ImportCheck(sink=SinkName("mine"), module="nosuch.module").findings()
    assert not finding.ok
    assert "No module named 'nosuch'" in finding.message
