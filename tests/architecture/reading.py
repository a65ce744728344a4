"""Reads the repository as text and syntax trees: what is tracked or could be, nothing that is ignored."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
CODE_FOLDERS = ("src", "tests", "demo", "bench", "docs")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    found = [path for folder in folders or CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "work" not in path.relative_to(ROOT).parts)


def markdown_files() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "demo").glob("*.md")])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes_of(tree: ast.AST) -> Sequence[ast.AST]:
    """Every node below it, for all rules that look at a file."""
    return tuple(ast.walk(tree))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an expression that is just that, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        prefix = dotted(node.value)
        return f"{prefix}.{node.attr}" if prefix else None
    return None


@cache
def full_names(tree: ast.AST) -> Mapping[str, str]:
    """What each imported name stands for: `from os import replace as r` gives {"r": "os.replace"}."""
    names: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


@cache
def calls(tree: ast.AST) -> Sequence[tuple[ast.Call, str]]:
    """Return every call of a named thing, with the name spelled out through the imports."""
    return tuple(_calls(tree))


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    names = full_names(tree)
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and (name := dotted(node.func)):
            first, _, rest = name.partition(".")
            whole = names.get(first, first if not rest else f"<local>.{first}")
            yield node, f"{whole}.{rest}" if rest else whole
