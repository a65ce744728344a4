"""What our code must not do. A rule takes a syntax tree and yields the lines that break it."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.architecture.reading import calls, functions, nodes_of

Check = Callable[[ast.AST], Iterator[int]]


@dataclass(frozen=True)
class Rule:
    """`where`: path prefixes it holds for. `unless`: path prefix -> why not there."""

    name: str
    check: Check
    where: tuple[str, ...]
    unless: Mapping[str, str]

    def holds_for(self, path: str) -> bool:
        return path.startswith(self.where) and not path.startswith(tuple(self.unless))


def calling(*banned: str) -> Check:
    return lambda tree: (node.lineno for node, name in calls(tree) if name in banned)


def importing(*banned: str) -> Check:
    def check(tree: ast.AST) -> Iterator[int]:
        for node in nodes_of(tree):
            if isinstance(node, ast.Import):
                found = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = {node.module.partition(".")[0]}
            else:
                continue
            if found & set(banned):
                yield node.lineno

    return check


def renaming(tree: ast.AST) -> Iterator[int]:
    """os.rename and friends, and Path.replace, which takes one argument where str.replace takes two."""
    for node, name in calls(tree):
        if name in {"os.rename", "os.replace", "os.renames", "shutil.move", "pathlib.Path.replace", "pathlib.Path.rename"}:
            yield node.lineno
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"replace", "rename"}:
            is_module = isinstance(node.func.value, ast.Name) and node.func.value.id in {"os", "dataclasses"}
            if len(node.args) == 1 and not node.keywords and not is_module:
                yield node.lineno


def swallowing(tree: ast.AST) -> Iterator[int]:
    """A bare except; `except Exception` (or wider) whose body does nothing; suppress(Exception)."""
    wide = {"Exception", "BaseException"}
    for node in nodes_of(tree):
        if isinstance(node, ast.ExceptHandler):
            names = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} if node.type else wide
            idle = all(isinstance(step, ast.Pass | ast.Continue) or _is_constant(step) for step in node.body)
            if node.type is None or (names & wide and idle):
                yield node.lineno
    for node, name in calls(tree):
        if name == "contextlib.suppress" and any(isinstance(arg, ast.Name) and arg.id in wide for arg in node.args):
            yield node.lineno


def _is_constant(step: ast.stmt) -> bool:
    return isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)


def unseeded(tree: ast.AST) -> Iterator[int]:
    """Module-level randomness, and generators made without a seed. A seed itself may be drawn: `seed = random.randrange(…)`."""
    seeds = {
        id(call)
        for node in nodes_of(tree)
        if isinstance(node, ast.Assign) and _names_a_seed(node)
        for call in ast.walk(node.value)
    }
    for node, name in calls(tree):
        if id(node) in seeds:
            continue
        module, _, function = name.rpartition(".")
        drawn_from_module = module == "random" and function not in {"Random", "SystemRandom"}
        made_without_seed = name in {"random.Random", "numpy.random.default_rng"} and not node.args and not node.keywords
        legacy_numpy = module == "numpy.random" and function not in {"default_rng", "Generator", "PCG64", "SeedSequence"}
        if drawn_from_module or made_without_seed or legacy_numpy:
            yield node.lineno


def _names_a_seed(node: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) and "seed" in target.id.lower() for target in node.targets)


def assuring_with_sets(tree: ast.AST) -> Iterator[int]:
    """distinct() as part of an oracle hides duplicates."""
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"distinct", "drop_duplicates"}
        ):
            yield node.lineno


PROTOCOL = tuple(
    f"src/penstock/{part}" for part in ("core/", "protocols.py", "commit/", "ledger/", "sink/", "stage/", "checkpoint/")
)
CLOCK = (
    "time.time",
    "time.time_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
)


def collecting_by_the_clock(tree: ast.AST) -> Iterator[int]:
    """Cases of a test that name what time it is: every worker collects others, and pytest-xdist then runs none at all."""
    decorators = [decorator for function in functions(tree) for decorator in function.decorator_list]
    inside = {id(node) for decorator in decorators for node in ast.walk(decorator)}
    return (node.lineno for node, name in calls(tree) if name in CLOCK and id(node) in inside)


RULES = (
    Rule(
        "prints",
        calling("print"),
        ("src/",),
        {},
    ),
    Rule(
        "sleeps",
        calling("time.sleep"),
        ("src/",),
        {"src/penstock/core/faults.py": "stalls on purpose", "src/penstock/cli/status.py": "watch waits between two looks"},
    ),
    Rule(
        "sleeps",
        calling("time.sleep"),
        ("tests/",),
        {
            "tests/crash/killing.py": "waits for a random moment, and for processes that are not its children",
            "tests/servers/": "a server that starts tells nobody when it answers",
        },
    ),
    Rule(
        "renames over what may be there",
        renaming,
        ("src/",),
        {
            "src/penstock/run/java.py": "a wrapper script in the cache, the same for every writer",
            "src/penstock/ledger/directory.py": "the hint, on which nothing depends",
            "src/penstock/checkpoint/files.py": "a file of a copy that is not finished, which its unreadable metadata says",
            "src/penstock/checkpoint/repair.py": "an entry of Spark's, of which a copy was kept, by the one fenced run",
            "src/penstock/cli/templates/": "a feed of the user's drops a whole file",
            "src/penstock/cli/opening.py": "a log for people, of the run before",
            "src/penstock/cli/report.py": "a report for people, in place of the one before",
            "src/penstock/observe/note.py": "a note for people, on which nothing depends",
            "src/penstock/run/preflight/description.py": "a run's own description, under its generation, on which no row depends",
            "src/penstock/observe/batch_record.py": "notes for people, in place of the older ones",
            "src/penstock/observe/state_samples.py": "notes for people, in place of the older ones",
            "src/penstock/run/state_rows.py": "a directory, which replaces none that holds anything",
            "src/penstock/sink/parquet/directory/adoption.py": "a list in place of one that it includes; looked at before",
            "src/penstock/journal/storage.py": "a reader's registration that only goes forward, and a segment of the same bytes",
        },
    ),
    Rule("pickles", importing("pickle", "cloudpickle", "dill", "marshal", "shelve"), ("src/",), {}),
    Rule("swallows every error", swallowing, ("src/", "tests/", "demo/", "bench/"), {}),
    Rule(
        "evaluates text",
        calling("eval", "exec", "compile", "os.system", "os.popen"),
        ("src/", "tests/", "demo/", "bench/"),
        {
            "tests/mutation/planted.py": "a mutant must be Python, and threads cannot parse at once",
            "tests/mutation/in_place.py": "a mutant is the code of its text",
            "tests/mutation/test_planted.py": "a module to plant in",
            "tests/crash/forked.py": "runs what Python is given with -c",
        },
    ),
    Rule("draws without a seed", unseeded, ("tests/", "bench/", "src/penstock/testing/"), {}),
    Rule(
        "asks the clock",
        calling(*CLOCK),
        PROTOCOL,
        {
            "src/penstock/sink/delta/log.py": "the log of Delta says when a file was removed, by which a vacuum goes",
            "src/penstock/sink/http/client.py": "a signature says when it was made, and an endpoint until when to wait",
            "src/penstock/checkpoint/acting.py": "the record of an act says to people when it was",
        },
    ),
    Rule("asks the clock which cases there are", collecting_by_the_clock, ("tests/",), {}),
    Rule("counts distinct rows", assuring_with_sets, ("tests/", "src/penstock/testing/"), {}),
)
