"""Names that docs/GLOSSARY.md retired are nobody's."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT, name_of, nodes_of, python_files, tree_of

OF_JSON = {
    "src/penstock/observe/status.py": {"trouble"},
    "src/penstock/run/doctor.py": {"trouble"},
}
"""Fields that are keys of `--json`, which other programs read."""


def retired() -> set[str]:
    table = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8").partition("| never called |")[2]
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.rstrip("| ").rpartition(" | ")[2])}


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What a module defines: classes, functions, parameters, fields, variables."""
    for node in nodes_of(tree):
        match node:
            case ast.ClassDef(name=name, lineno=line) | ast.FunctionDef(name=name, lineno=line) | ast.arg(arg=name, lineno=line):
                yield name, line
            case ast.Name(id=name, ctx=ast.Store(), lineno=line) | ast.Attribute(attr=name, ctx=ast.Store(), lineno=line):
                yield name, line
            case ast.ExceptHandler(name=str(name), lineno=line):
                yield name, line


def test_the_glossary_retires_names() -> None:
    assert {"told", "trouble", "said", "Rider"} <= retired()


@pytest.mark.parametrize("code", ["def told(): ...", "class Rider: ...", "said = 1", "self.trouble = 1", "def f(said): ..."])
def test_a_retired_name_is_seen(code: str) -> None:
    assert {name for name, _ in names_in(ast.parse(code))} & retired()


@pytest.mark.parametrize("path", python_files("src", "bench", "demo"), ids=name_of)
def test_no_retired_name_is_used(path: Path) -> None:
    words = retired() - OF_JSON.get(name_of(path), set())
    assert path.stem not in words
    assert [f"{line}: {name}" for name, line in names_in(tree_of(path)) if name in words] == []
