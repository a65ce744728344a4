"""Every fault point is declared once, surrounds one operation, and is reached by a test."""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.reading import calls, dotted, name_of, nodes_of, python_files, tree_of


@dataclass(frozen=True)
class Declared:
    """`constant`: the module-level name that holds the point. `meaning`: None unless it is plain text."""

    name: str
    constant: str
    path: Path
    meaning: str | None
    tears: bool

    def __str__(self) -> str:
        return f"{self.name} ({name_of(self.path)})"


def declared_in(path: Path) -> list[Declared]:
    found = []
    for node in tree_of(path).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and dotted(value.func) == "FaultPoint":
            texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in value.args]
            found.append(Declared(str(texts[0]), target.id, path, texts[1], any(word.arg == "tears" for word in value.keywords)))
    return found


WITH_POINTS = [path for path in python_files("src") if "FaultPoint(" in path.read_text(encoding="utf-8")]
"""Only these are parsed, since whoever collects tests waits for it."""
POINTS = [point for path in WITH_POINTS for point in declared_in(path)]
each_point = pytest.mark.parametrize("point", POINTS, ids=str)


def uses(point: Declared) -> Counter[str]:
    """How often the point's constant is used where it is declared, by method; importing it elsewhere counts as `elsewhere`."""
    found: Counter[str] = Counter()
    for node in nodes_of(tree_of(point.path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == point.constant:
            found[node.attr] += 1
    module = (
        point.path.relative_to(point.path.parents[point.path.parts[::-1].index("src") - 1])
        .with_suffix("")
        .as_posix()
        .replace("/", ".")
    )
    found["elsewhere"] = imports()[module, point.constant]
    return found


@cache
def imports() -> Counter[tuple[str | None, str]]:
    """How often a name of a module is imported in the package."""
    return Counter(
        (node.module, alias.name)
        for path in python_files("src")
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def test_there_are_points_and_all_are_declared_at_module_level() -> None:
    made = Counter(
        name_of(path)
        for path in python_files("src")
        for _, name in calls(tree_of(path))
        if name == "penstock.core.faults.FaultPoint"
    )
    assert made
    assert made == Counter(name_of(point.path) for point in POINTS)


def test_names_are_declared_once_and_have_a_part_and_a_step() -> None:
    assert [name for name, number in Counter(point.name for point in POINTS).items() if number > 1] == []
    assert [str(point) for point in POINTS if point.name.count(".") < 1] == []
    assert [str(point) for point in POINTS if not point.meaning] == []


@each_point
def test_surrounds_exactly_one_operation_beside_its_declaration(point: Declared) -> None:
    found = uses(point)
    assert found["elsewhere"] == 0
    assert found["around"] <= 1
    assert found["write"] == point.tears
    assert found["around"] + found["write"] >= 1


def files_of_tests() -> list[Path]:
    paths = [*python_files("tests"), *python_files("src/penstock/testing")]
    return [path for path in paths if path.parent != Path(__file__).parent]


@cache
def texts_in_tests() -> set[str]:
    texts = [
        node.value
        for path in files_of_tests()
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {word for text in texts for word in re.split(r"[\s=,@]+", text)}


@cache
def parts_of_crash_contracts() -> set[str]:
    """The `fault_parts` of the conformance suite: it arms every point whose name begins so, and requires that each fired."""
    return {
        value.value
        for path in files_of_tests()
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Assign) and [dotted(target) for target in node.targets] == ["fault_parts"]
        for value in ast.walk(node.value)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


@each_point
def test_is_reached_by_a_test(point: Declared) -> None:
    """A test names it, or the crash contract of its sink arms it."""
    assert point.name in texts_in_tests() or point.name.partition(".")[0] in parts_of_crash_contracts()
