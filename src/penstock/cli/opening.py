"""Arguments that several verbs share, and the pipeline that they name."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace one value of the pipeline file; may be repeated.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this only what would be done is shown.")]


def pipeline(file: str, overrides: Sequence[str] | None = None) -> "Pipeline":
    """Return the pipeline of a file. Raises Usage. Imports late: `--help` and `--version` need none of it."""
    from penstock.run.pipeline import Pipeline

    return Pipeline.from_file(file, overrides or ())


def debugging(context: typer.Context) -> bool:
    """Return whether `--debug` was given: then nothing is hidden."""
    return bool(context.find_root().params.get("debug"))


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Silence PySpark and py4j while a session is made: they log every error besides raising it."""
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_not_of_py4j)
    yield
    logging.getLogger("SQLQueryContextLogger").disabled = True  # only now: PySpark creates it with its own class


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
