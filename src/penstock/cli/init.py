"""`penstock init`: makes a project that runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.opening import Json
from penstock.cli.output import show
from penstock.errors import Failed, Usage

_SHARED = "shared"
_SCHEMA = "pipeline.schema.json"
_HIDDEN = {"gitignore": ".gitignore", "dockerignore": ".dockerignore"}


class Template(str, Enum):
    """The available project templates."""

    FILES = "files"
    RATE = "rate"
    KAFKA = "kafka"

    @property
    def extras(self) -> str:
        """Penstock's extras that the template's pipeline needs."""
        return "spark,java,kafka,delta" if self is Template.KAFKA else "spark,java"

    @property
    def inputs(self) -> str:
        """The directories that the template's pipeline reads, with blanks between."""
        return "incoming" if self is Template.FILES else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project that was made."""

    directory: str
    template: Template
    pipeline: str
    files: tuple[str, ...]


def make_project(directory: Path, template: Template) -> Project:
    """Write the files of `template` into `directory`. Raises Usage, and writes nothing, if one of them exists."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", directory.absolute().name).strip("-.")[:100] or "pipeline"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "pipeline"
    values = {"name": name, "slug": slug, "extras": template.extras, "inputs": template.inputs}
    texts = {path: _filled(text, values) for path, text in _texts(template)}
    if directory.is_file():
        raise Usage(f"{directory} is a file, expected a directory.", remedy="Choose another name: penstock init DIR.")
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
        for file in folder.iterdir():
            if file.is_file() and not file.name.endswith(".pyc"):
                yield _HIDDEN.get(file.name, file.name), file.read_text(encoding="utf-8")
    yield _SCHEMA, (resources.files("penstock.spec") / _SCHEMA).read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(name|slug|extras|inputs)\}\}", lambda found: values[found[1]], text)


def _text(project: Project) -> str:
    made = "\n".join(f"  {Path(project.directory) / file}" for file in project.files)
    first = "  make kafka    # or: export KAFKA=host:9092\n  make data\n" if project.template is Template.KAFKA else ""
    enter = "" if project.directory == "." else f"  cd {project.directory}\n"
    return f"Made the pipeline {project.pipeline}:\n{made}\n\nNext:\n{enter}{first}  make run\n  make verify"


def init(
    *,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to; made if it is missing.")] = Path(),
    template: Annotated[
        Template,
        typer.Option(
            help="files: CSV files to accounts and SQLite. rate: rows that Spark makes. kafka: JSON in a topic, summed up in a "
            "Delta table, with RocksDB state."
        ),
    ] = Template.FILES,
    as_json: Json = False,
) -> None:
    """Make a project that runs: pipeline file, a generator of sample data, Makefile, container and Kubernetes recipes."""
    show(make_project(directory, template), as_json=as_json, text=_text)
