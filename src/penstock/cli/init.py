"""`penstock init`: makes a project that runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json
from penstock.cli.output import show
from penstock.errors import Failed, Usage

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SHARED = "shared"
_SCHEMA = "pipeline.schema.json"
_HIDDEN = {"gitignore": ".gitignore", "dockerignore": ".dockerignore"}


class Template(str, Enum):
    """The available project templates."""

    FILES = "files"
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project that was made."""

    directory: str
    template: Template
    pipeline: str
    files: tuple[str, ...]


def make_project(directory: Path, template: Template) -> Project:
    """Write the files of `template` into `directory`. Raises Usage, and writes nothing, if one of them exists."""
    name = _pipeline_name(directory)
    texts = {path: _filled(text, name) for path, text in _texts(template)}
    there = sorted(path for path in texts if (directory / path).exists())
    if there:
        raise Usage(f"{directory / there[0]} exists already.", remedy="Choose an empty directory: penstock init DIR.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with (directory / path).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise Failed(
            f"{error.filename} cannot be written: {error.strerror}.", remedy="Choose a directory that can be written."
        ) from error
    return Project(directory=str(directory), template=template, pipeline=name, files=tuple(sorted(texts)))


def _texts(template: Template) -> Iterator[tuple[str, str]]:
    root = resources.files("penstock.cli") / "templates"
    for folder in (root / _SHARED, root / template.value):
        yield from ((_HIDDEN.get(file.name, file.name), file.read_text(encoding="utf-8")) for file in _files(folder))
    yield _SCHEMA, (resources.files("penstock.spec") / _SCHEMA).read_text(encoding="utf-8")


def _files(folder: "Traversable") -> "Iterator[Traversable]":
    return (file for file in folder.iterdir() if file.is_file() and not file.name.endswith(".pyc"))


def _filled(text: str, name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return text.replace("{{name}}", name).replace("{{slug}}", slug or "pipeline")


def _pipeline_name(directory: Path) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", directory.absolute().name).strip("-.")
    return cleaned[:100] or "pipeline"


def _text(project: Project) -> str:
    made = "\n".join(f"  {Path(project.directory) / file}" for file in project.files)
    enter = "" if project.directory == "." else f"  cd {project.directory}\n"
    return f"Made the pipeline {project.pipeline}:\n{made}\n\nNext:\n{enter}  make run\n  make verify"


def init(
    *,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to; made if it is missing.")] = Path(),
    template: Annotated[Template, typer.Option(help="files: CSV files to accounts and SQLite. rate: rows that Spark makes.")] = (
        Template.FILES
    ),
    as_json: Json = False,
) -> None:
    """Make a project that runs: pipeline file, sample data, Makefile, container and Kubernetes recipes."""
    show(make_project(directory, template), as_json=as_json, text=_text)


def add_to(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command(rich_help_panel="Begin")(init)
