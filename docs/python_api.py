"""Writes docs/reference/python.md: every name that `penstock` exports, with its docstring. Run by `make docs`."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docs.pipeline_file import SECTIONS

import penstock

PAGE: Final = Path(__file__).parent / "reference" / "python.md"
_HEAD: Final = """# Python API

Which names does `import penstock` have, and what does each of them do? [The page about Python](../howto/python.md)
shows them at work.

<!-- Made by `make docs` from the docstrings; do not edit. -->

Besides these, `penstock.errors` ([every error](../ERRORS.md)), `penstock.protocols` (what a sink is) and
`penstock.testing` (the suite for sinks) are for you. All other modules, and methods that are not
on this page, change without notice.
"""
_GROUPS: Final = {
    "Deliver": "Delivery Pipeline Query BatchProgress Guarantee",
    "Read what was delivered": "read Reading register_source memory_table clear_memory_table",
    "Write a sink": "OwnSink OwnBatch to_json_lines from_json_lines require_json",
    "Errors and version": "PenstockError __version__",
}
_SETTINGS: Final = """
## Settings

Each is a part of the pipeline file as an object, and its arguments are the keys of that part. All arguments are given by name.

| class | what it is | keys |
|---|---|---|"""
_INTERNAL: Final = {
    "Delivery": {"of_plan", "start_checked", "open", "opened", "diagnose", "release"},
    "Pipeline": {"plan", "require_startable", "require_parts", "frame", "status_reader"},
    "Query": {"run_until"},
    "OwnSink": {"bound", "check", "prepare"},
}
"""What Penstock itself calls: users do not."""
_MORE: Final = {
    "OwnSink": "[A sink of your own](../howto/own_sink.md) shows the methods of `Author`.\n",
    "Pipeline": "What the methods return has the fields that the command prints with `--json`.\n",
    "Guarantee": 'Its members are `Guarantee.EXACTLY_ONCE` and `Guarantee.AT_LEAST_ONCE`; the texts `"exactly_once"` and\n'
    '`"at_least_once"` do as well.\n',
}


_WIDE: Final = 90


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as the code is now."""
    settings = {kind: title for title, kind in SECTIONS}
    lines = [_HEAD]
    for title, names in _GROUPS.items():
        lines += [f"## {title}\n", *(line for name in names.split() for line in _entry(name))]
    rows = [
        (name, settings[kind])
        for name in sorted(penstock.__all__, key=str.lower)
        if (kind := getattr(penstock, name)) in settings
    ]
    lines += [_SETTINGS.removeprefix("\n"), *(_setting(name, title) for name, title in rows)]
    return "\n".join(lines) + "\n"


def listed() -> set[str]:
    """The names that the page has."""
    return set(re.findall(r"^(?:### |\| )`(\w+)", page(), re.MULTILINE))


def _setting(name: str, title: str) -> str:
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    about = inspect.cleandoc(getattr(penstock, name).__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return f"| `{name}` | {about} | [{title}](pipeline-file.md#{anchor}) |"


def _entry(name: str) -> Iterator[str]:
    value: Any = getattr(penstock, name)
    if isinstance(value, str):
        yield from (f"### `{name}`\n", "The version, as text.\n")
        return
    yield f"### `{name}`\n"
    node = _node(value)
    signature = _signature(node, name)
    if signature:
        yield f"```text\n{signature}\n```\n"
    yield f"{_text(node)}\n"
    yield from filter(None, [_MORE.get(name)])
    if isinstance(value, type):
        for kind in value.__mro__:
            if kind.__module__.startswith("penstock.run.pipeline") or kind is value:
                yield from _members(name, _node(kind))


def _node(value: object) -> ast.ClassDef | ast.FunctionDef:
    tree = ast.parse(Path(inspect.getfile(value)).read_text(encoding="utf-8"))  # type: ignore[arg-type]
    name = value.__name__  # type: ignore[attr-defined]
    return next(node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name)


def _text(node: ast.ClassDef | ast.FunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _signature(node: ast.ClassDef | ast.FunctionDef, name: str) -> str:
    """How it is called: of a class, its `__init__`, or the fields of a dataclass. Empty where users do not make one."""
    if isinstance(node, ast.FunctionDef):
        return f"{name}({_arguments(node)}){_returned(node)}"
    made = next((method for method in _functions(node) if method.name == "__init__"), None)
    if made is not None:
        return f"{name}({_arguments(made)})"
    fields = [_without_quotes(ast.unparse(field)) for field in node.body if isinstance(field, ast.AnnAssign)]
    return "\n".join(filter(_is_public, fields))


def _arguments(function: ast.FunctionDef) -> str:
    text = re.sub(r"^self(?:, )?|^cls(?:, )?", "", ast.unparse(function.args))
    parts = [re.sub(r"(: .+?)=", r"\1 = ", _without_quotes(part)) for part in _split(text)]
    return ", ".join(parts) if len(text) < _WIDE else "\n    " + ",\n    ".join(parts) + "\n"


def _without_quotes(annotated: str) -> str:
    """An annotation that is a text, as if it were none."""
    return re.sub(r": '([^']*)'", r": \1", annotated)


def _split(arguments: str) -> list[str]:
    """The arguments one by one: a comma within brackets is part of one."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _returned(function: ast.FunctionDef) -> str:
    return "" if function.returns is None else f" -> {ast.unparse(function.returns).strip(chr(39))}"


def _functions(of: ast.ClassDef) -> list[ast.FunctionDef]:
    return [node for node in of.body if isinstance(node, ast.FunctionDef)]


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _members(name: str, node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    for method in _functions(node):
        decorators = {ast.unparse(each) for each in method.decorator_list}
        text = _text(method)
        if (
            not _is_public(method.name)
            or method.name in _INTERNAL.get(name, ())
            or not text
            or decorators & {"overload", "abstractmethod"}
        ):
            continue
        called = "" if "property" in decorators else f"({_arguments(method)})"
        yield f"**`{method.name}`**\n"
        around = "with " if "contextmanager" in decorators else ""
        yield f"```text\n{around}{name}.{method.name}{called}{_returned(method)}\n```\n"
        yield f"{text}\n"


if __name__ == "__main__":
    main()
