"""Every error class is raised somewhere, documented, and drawn in the tree of errors.py."""

import ast
from functools import cache

import pytest

from penstock import errors
from tests.architecture.reading import PACKAGE, ROOT, calls, nodes_of, python_files, tree_of

CLASSES = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]
GROUPS = (errors.PenstockError, errors.Refused, errors.Failed)
CAUGHT_HERE = (errors.PositionTaken, errors.Conflict)
"""No user ever sees them."""
each_class = pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)


@cache
def mentioned_in_code() -> set[str]:
    """Names used as values outside of except clauses and annotations: raised, returned, or handed on as what to raise."""
    found = set()
    for path in python_files("src"):
        if path == PACKAGE / "errors.py":
            continue
        for call, name in calls(tree_of(path)):
            given = [*call.args, *(word.value for word in call.keywords)]
            found |= {name.rpartition(".")[2], *(node.id for node in given if isinstance(node, ast.Name))}
        raised = [node.exc for node in nodes_of(tree_of(path)) if isinstance(node, ast.Raise)]
        found |= {node.id for node in raised if isinstance(node, ast.Name)}
    return found


@each_class
def test_is_raised_somewhere(error: type[Exception]) -> None:
    if error not in GROUPS:
        assert error.__name__ in mentioned_in_code()


@each_class
def test_is_documented_with_its_exit_code(error: type[Exception]) -> None:
    if error in {*CAUGHT_HERE, *GROUPS}:
        return
    rows = [line for line in (ROOT / "docs" / "ERRORS.md").read_text().splitlines() if line.startswith(f"| `{error.__name__}` |")]
    assert len(rows) == 1
    assert rows[0].split("|")[2].strip() == str(getattr(error, "exit_code"))  # noqa: B009


@each_class
def test_is_drawn_in_the_tree(error: type[Exception]) -> None:
    assert error.__name__ in (errors.__doc__ or "")


@each_class
def test_says_what_it_means(error: type[Exception]) -> None:
    assert error.__doc__
