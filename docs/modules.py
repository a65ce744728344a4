"""Writes docs/reference/modules.md: every module with the first sentence of its docstring. Run by `make docs`."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"
PAGE = ROOT / "docs" / "reference" / "modules.md"
HEAD = """# Modules

Every file with the first sentence of its docstring, in the order of [the map](../ARCHITECTURE.md).

<!-- Made by `make docs` from the docstrings; do not edit. -->
"""
ORDER = (
    *("", "core", "spec", "source", "transform", "stage", "commit", "ledger", "sink"),
    *(
        "blob",
        "journal",
        "kafka",
        "sql",
        "registry",
        "spark",
        "support",
        "checkpoint",
        "observe",
        "receive",
        "supervise",
        "run",
        "testing",
        "cli",
    ),
)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as the code is now."""
    return HEAD + "\n".join(table(folder) for folder in ORDER)


def table(folder: str) -> str:
    """The modules of one folder of the package, below what its `__init__` says."""
    about = sentence(PACKAGE / folder / "__init__.py") if folder else "What users import, and what a sink and a ledger must do."
    rows = [f"| `{path.relative_to(PACKAGE)}` | {sentence(path)} |" for path in modules(folder)]
    return "\n".join([f"\n## {folder or 'penstock'}\n", f"{about}\n", "| file | what it is |", "|---|---|", *rows, ""])


def modules(folder: str) -> list[Path]:
    """Every module, without those whose `__init__` is all there is to say and without the templates of `penstock init`."""
    found = (PACKAGE / folder).rglob("*.py") if folder else PACKAGE.glob("*.py")
    return sorted(path for path in found if path.name != "__init__.py" and "templates" not in path.parts)


def sentence(path: Path) -> str:
    """The first sentence of the module's docstring, in one line."""
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else None) or ""
    text = re.match(r"(.*?[.!?])(?:\s|$)", " ".join(first.partition("\n\n")[0].split())) if first else None
    return text[1].replace("|", "\\|") if text else (first.partition("\n")[0] or "(no docstring)")


if __name__ == "__main__":
    main()
