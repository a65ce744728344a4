"""Links lead somewhere, every module is listed, and every document is reachable from the README."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs import modules, pictures, python_api, screens

import penstock
from tests.architecture.reading import PACKAGE, ROOT, dotted, markdown_files, name_of, nodes_of, python_files, tree_of

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links_of(path: Path) -> list[str]:
    return LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8")))


def anchors_of(path: Path) -> set[str]:
    """As GitHub makes them: lower case, punctuation dropped, blanks to hyphens."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", markdown_files(), ids=name_of)
def test_docs_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in links_of(path):
        place, _, anchor = link.partition("#")
        if place.startswith(("https://", "mailto:")):
            continue
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_docs_pictures_of_pages_are_there_and_small() -> None:
    named = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {ROOT / name for name in named} == set((ROOT / "docs/pictures/screens").iterdir())
    assert [name for name in named if (ROOT / name).stat().st_size > screens.LARGEST_BYTES] == []


def test_docs_are_all_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path in seen or path.suffix != ".md" or not path.exists():
            continue
        seen.add(path)
        ahead += [(path.parent / link.partition("#")[0]).resolve() for link in links_of(path) if not link.startswith("http")]
    assert [name_of(path) for path in markdown_files() if path not in seen] == []


def test_docs_make_a_site(tmp_path: Path) -> None:
    """With every page in its navigation and no link that leads nowhere: any warning fails it."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Reading whole batches" in index
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="((?:https?:)?//[^"]*)"', index)
    assert loaded == [], "a page loads nothing from elsewhere"


def test_docs_list_every_module_as_it_is_now() -> None:
    text = modules.PAGE.read_text(encoding="utf-8")
    assert text == modules.page(), "run `make docs`"
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(
        path.relative_to(PACKAGE).as_posix() for folder in folders() for path in modules.modules(folder)
    ), "a folder is missing in docs/modules.py"


def test_docs_have_every_exported_name_as_it_is_now() -> None:
    assert python_api.PAGE.read_text(encoding="utf-8") == python_api.page(), "run `make docs`"
    assert python_api.listed() == set(penstock.__all__)


@pytest.mark.parametrize("path", markdown_files(), ids=name_of)
def test_docs_show_pictures_that_are_there_and_as_they_are_now(path: Path) -> None:
    for shown in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", FENCED.sub("", path.read_text(encoding="utf-8"))):
        picture = (path.parent / shown).resolve()
        assert picture.is_file()
        if picture.parent.name == "screens":  # of a page that pipelines filled: no two are the same
            continue
        assert picture.read_text(encoding="utf-8") == pictures.svg(pictures.PICTURES[picture.stem]), "run `make docs`"


def named_lines() -> list[tuple[str, str]]:
    """Of the table in docs/ARCHITECTURE.md: a name, and the file that defines it."""
    return re.findall(r"`(?:\w+\.)?(\w+)`, `([\w/]+\.py)`", (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "file"), named_lines())
def test_docs_name_lines_that_are_there(name: str, file: str) -> None:
    tree = tree_of(PACKAGE / file)
    assert name in {node.name for node in nodes_of(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.parametrize("invariant", [f"I{number}" for number in range(1, 13)])
def test_docs_name_invariants_that_some_line_holds(invariant: str) -> None:
    pattern = re.compile(rf"  # .*\b{invariant}\b")
    assert any(pattern.search(path.read_text(encoding="utf-8")) for path in python_files("src"))


def folders() -> list[str]:
    return ["", *sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")})]


@pytest.mark.parametrize("path", python_files("src", "demo", "bench", "docs"), ids=name_of)
def test_docs_every_file_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring or not path.read_text(encoding="utf-8").strip()
    assert not docstring or re.match(r".*?[.!?](\s|$)", docstring, re.DOTALL)


def classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (name_of(path), node)
        for path in python_files("src", "demo", "docs")
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    ]


def bases_of(of: ast.ClassDef) -> set[str | None]:
    return {dotted(base.value if isinstance(base, ast.Subscript) else base) for base in of.bases}


def methods_of(of: ast.ClassDef) -> list[ast.FunctionDef]:
    return [node for node in of.body if isinstance(node, ast.FunctionDef)]


def said_in(of: ast.ClassDef) -> set[str]:
    return {method.name for method in methods_of(of) if ast.get_docstring(method)}


def is_plain(method: ast.FunctionDef) -> bool:
    """Whether its name says all: one statement, a test, or a hook that is pytest's."""
    return len(method.body) == 1 or method.name.startswith(("test_", "pytest_"))


def test_docs_every_public_method_says_what_it_does_or_its_protocol_says_it() -> None:
    bases = {base for _, each in classes() for base in bases_of(each)}
    contracts = [each for _, each in classes() if each.name in bases or "Protocol" in bases_of(each)]
    said = {name for each in contracts for name in said_in(each)}
    silent = [
        f"{path}:{method.lineno} {each.name}.{method.name}"
        for path, each in classes()
        for method in methods_of(each)
        if not each.name.startswith("_") and not method.name.startswith("_") and method.name not in said | said_in(each)
        if not is_plain(method)
    ]
    assert silent == []
