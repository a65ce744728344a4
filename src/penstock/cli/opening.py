"""From the command line's arguments to a pipeline."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline


def pipeline(file: str, overrides: Sequence[str] | None = None) -> "Pipeline":
    """The pipeline of a file. Raises Usage. Imported late: `--help` and `--version` need none of it."""
    from penstock.run.pipeline import Pipeline

    return Pipeline.from_file(file, overrides or ())


def debugging(context: typer.Context) -> bool:
    """Whether `--debug` was given: then nothing is hidden."""
    return bool(context.find_root().params.get("debug"))


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Surround the making of a session. PySpark and py4j log every error besides raising it; that is switched off here."""
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_not_of_py4j)
    yield
    logging.getLogger("SQLQueryContextLogger").disabled = True  # only now: PySpark makes it with a class of its own


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
