"""The import contracts of pyproject.toml hold and leave nothing out, and the core works without pyspark."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.reading import PACKAGE, ROOT, nodes_of, python_files, tree_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
EVERYWHERE = {"penstock", "pyarrow", "numpy", "typing_extensions", "tenacity", "xxhash"}
"""What the core installs and any module may use."""


def test_the_contracts_hold() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_third_party_package_has_a_contract_that_says_who_may_import_it() -> None:
    governed = {name.partition(".")[0] for contract in CONTRACTS for name in contract.get("protected_modules", [])}
    imported = {
        (name.partition(".")[0], path.relative_to(ROOT).as_posix())
        for path in python_files("src")
        for node in nodes_of(tree_of(path))
        for name in _imports(node)
    }
    free = EVERYWHERE | governed | set(sys.stdlib_module_names)
    assert sorted((name, path) for name, path in imported if name not in free) == []


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py") if "templates" not in path.parts}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


SPARK = ("pyspark", "pandas", "py4j")
ROWS = ("pyarrow", "numpy")
SETTINGS = ("pydantic", "ruamel")
CLIENTS = ("psycopg", "pymysql", "boto3", "azure", "google", "duckdb", "deltalake", "pyiceberg", "cassandra", "confluent_kafka")
REFUSED = """
from penstock.cli.app import main
sources = "{s: {format: json, path: ./absent, schema: id INT}}"
sinks = "{m: {type: parquet, accounts: {a: ./a}}}"
open("p.yaml", "w").write(f"pipeline: p\\nsources: {sources}\\nsinks: {sinks}\\n")
try:
    main(["run", "p.yaml"])
except SystemExit as ended:
    assert ended.code == 2
"""
NOT_LOADED = {
    "import penstock": (*SPARK, *ROWS, *SETTINGS, *CLIENTS, "typer"),
    "import penstock.cli.app": (*SPARK, *ROWS, *SETTINGS, *CLIENTS),
    "import penstock.checkpoint": (*SPARK, *ROWS, *SETTINGS, *CLIENTS),
    "import penstock.observe.status": (*SPARK, *ROWS, *CLIENTS),
    REFUSED: (*SPARK, *CLIENTS),
}


@pytest.mark.parametrize(
    "statement", NOT_LOADED, ids=lambda statement: "a run that is refused" if statement is REFUSED else statement
)
def test_loads_nothing_that_is_not_needed(statement: str, tmp_path: Path) -> None:
    """What is loaded in vain is paid by every command, and by every error that a person waits for."""
    code = (
        f"{statement}\nimport sys\nloaded = [m for m in {NOT_LOADED[statement]!r} if m in sys.modules]\nassert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_works_without_pyspark(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['pyspark'] = None\nfrom penstock.cli.app import main\nsys.argv = ['penstock', '--help']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "verify" in done.stdout
