"""Arguments that several verbs share, the pipeline that they name, and where Spark's messages go meanwhile."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typing_extensions import Self

from penstock.cli.output import name_file
from penstock.errors import Usage
from penstock.support.private_files import make_private_directory, open_private, stderr_to

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
OverridesOfEach = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace one value of each pipeline file; may be repeated.", show_default=False
    ),
]
OtherOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--other-set",
        metavar="KEY=VALUE",
        help="Replace one value of the second pipeline file; may be repeated.",
        show_default=False,
    ),
]
Session = TypeVar("Session")
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this only what would be done is shown.")]


def pipeline(file: str, overrides: Sequence[str] | None = None) -> "Pipeline":
    """Return the pipeline of a file. Raises Usage. Imports late: `--help` and `--version` need none of it."""
    name_file(None if overrides else file)  # a command without what `--set` replaced could do harm
    from penstock.run.pipeline import Pipeline

    return Pipeline.from_file(file, overrides or ())


@contextmanager
def naming_other_set() -> Iterator[None]:
    """Let a mistake in an override of the second file name `--other-set`, by which it was given. Raises Usage."""
    try:
        yield
    except Usage as mistake:
        named = (text.replace("--set", "--other-set") for text in (mistake.message, mistake.remedy))
        raise Usage(next(named), remedy=next(named)) from None


def debugging(context: typer.Context) -> bool:
    """Return whether `--debug` was given: then nothing is hidden."""
    return bool(context.find_root().params.get("debug"))


def quiet_session(make: Callable[[], Session]) -> Session:
    """Return the session that `make` returns, with PySpark and py4j silenced: they log every error besides raising it."""
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    session = make()
    logging.getLogger("SQLQueryContextLogger").disabled = True  # only now: PySpark must create it, with its own class
    return session


class SparkLog:
    """Sends what the JVM writes to stderr to `<home>/<name>.log` while entered; the previous run's log stays as `.1`.

    If the file cannot be written, nothing is redirected; the run itself reports what is wrong with the directory.
    """

    def __init__(self, home: str, *, name: str = "spark") -> None:
        self.path = Path(home) / f"{name}.log"
        self._redirected = ExitStack()

    def __enter__(self) -> Self:
        try:
            make_private_directory(self.path.parent)
            if self.path.exists():
                self.path.replace(self.path.with_suffix(".log.1"))
            file = open_private(self.path, "xb")
        except OSError:
            return self
        self._redirected.enter_context(stderr_to(file))
        return self

    def __exit__(self, *raised: object) -> None:
        self._redirected.close()

    def location(self) -> str | None:
        """Return the path of Spark's messages of this run, None if there are none."""
        try:
            return str(self.path) if self.path.stat().st_size else None
        except OSError:
            return None
