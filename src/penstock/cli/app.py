"""Entry point of `penstock`: registers the verbs, and turns every error into a message and an exit code."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli import (
    backfill,
    check,
    checkpoint,
    checkpoint_acts,
    compare,
    contents,
    crashtest,
    doctor,
    history,
    init,
    journal,
    metrics,
    operate,
    receive,
    replay,
    report,
    run,
    savepoint,
    state,
    status,
    supervise,
    verify,
)
from penstock.cli.output import name_file, show_error, traceback_of, with_file
from penstock.errors import PenstockError, Usage
from penstock.support.printable import printable
from penstock.support.secret import scrub

_INTERRUPTED: Final = 128 + signal.SIGINT
_BROKEN_PIPE: Final = 128 + signal.SIGPIPE
_UNEXPECTED: Final = "This is a mistake in Penstock or in code that it calls: run it again with --debug to see where."
_CommandLineError: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="penstock",
    help="Exactly-once delivery from PySpark Structured Streaming into any number of sinks, with proof.",
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class SafeFormatter(logging.Formatter):
    """Formats log messages that no handler takes for the terminal: with the pipeline file in commands, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(with_file(scrub(super().format(record))))


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - called by typer
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"penstock {version('penstock')}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="As --debug, and what databases say, which can name values of rows.")
    ] = False,
) -> None:
    """Declared here for `--help`; `main` and the verbs look at them."""


_quarantine = typer.Typer(name="quarantine", help="Records and rows that were put aside in the quarantine.", no_args_is_help=True)
_quarantine.command("list")(contents.list_)
_quarantine.command("show")(contents.show_)
_quarantine.command()(replay.replay)
_checkpoint = typer.Typer(
    name="checkpoint", help="Look into a Spark checkpoint, and change it, without Java.", no_args_is_help=True
)
_checkpoint.command()(checkpoint.inspect)
_checkpoint.command()(checkpoint.explain)
_checkpoint.command()(checkpoint.verify)
_checkpoint.command()(checkpoint.diff)
_checkpoint.command()(checkpoint.copy)
_checkpoint.command()(checkpoint_acts.rebuild)
_checkpoint.command()(checkpoint_acts.migrate)
_checkpoint.command()(checkpoint_acts.rewind)
_checkpoint.command()(checkpoint_acts.gc)
_checkpoint.command()(checkpoint_acts.repair)
_journal = typer.Typer(name="journal", help="Look after the write-ahead log of a receiver.", no_args_is_help=True)
_journal.command()(journal.inspect)
_journal.command()(journal.verify)
_journal.command()(journal.readers)
_journal.command()(journal.trim)

_savepoint = typer.Typer(
    name="savepoint",
    help="Keep copies of the checkpoint, to go back to and to begin second pipelines from.",
    no_args_is_help=True,
)
_savepoint.command()(savepoint.create)
_savepoint.command("list")(savepoint.list_)
_savepoint.command()(savepoint.verify)
_savepoint.command()(savepoint.restore)
_savepoint.command()(savepoint.fork)
_savepoint.command()(savepoint.delete)

for _panel, _verbs in (
    ("Begin", (init.init, check.check, check.explain)),
    ("Run", (run.run, supervise.supervise, receive.receive)),
    (
        "Look",
        (
            *(status.status, status.watch, contents.files, history.history, history.offsets, state.state),
            *(verify.verify, compare.compare, doctor.doctor),
        ),
    ),
    ("Observe", (metrics.metrics, report.report)),
    ("Change", (backfill.backfill,)),
    ("Repair", (operate.recover, operate.adopt, operate.rewind, operate.sweep)),
    ("Test", (crashtest.crashtest,)),
):
    for _verb in _verbs:
        app.command(rich_help_panel=_panel)(_verb)
for _group in (_quarantine, _checkpoint, _journal):
    app.add_typer(_group, rich_help_panel="Look")
app.add_typer(_savepoint, rich_help_panel="Repair")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented code (0, 1, 2, 3, 4, 5, 75), or 128 plus the signal if interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = words[: words.index("--")] if "--" in words else words
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(SafeFormatter())
    values, as_json = "--show-values" in options, "--json" in options
    debug = values or "--debug" in options
    rest = [word for word in options if word not in {"--debug", "--show-values"}] + words[len(options) :]
    detail = _Detail(tracebacks=debug, values=values)
    code = _run(["--debug", *rest] if debug and rest else rest or ["--help"], detail=detail, as_json=as_json)
    name_file(None)
    sys.exit(code)


class _Detail(NamedTuple):
    """How much of an error is shown."""

    tracebacks: bool
    values: bool


@cache
def _command() -> Any:
    """Return all verbs as one command. Making it takes longer than most verbs do, and programs call `main` again and again."""
    return typer.main.get_command(app)


def _run(words: Sequence[str], *, detail: _Detail, as_json: bool) -> int:
    try:
        return int(_command()(args=list(words), prog_name="penstock", standalone_mode=False) or 0)
    except PenstockError as error:
        return _ended(error, detail=detail, as_json=as_json)
    except _CommandLineError as error:
        return _wrong(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last place before the user: reported in one style, never swallowed
        return _ended(PenstockError(f"{type(error).__name__}: {error}", remedy=_UNEXPECTED), detail=detail, as_json=as_json)


def _ended(error: PenstockError, *, detail: _Detail, as_json: bool) -> int:
    """Show `error` and return its exit code. The traceback is of the exception being handled, which can be another one."""
    raised = sys.exc_info()[1]
    if detail.tracebacks and raised is not None:
        sys.stderr.write(traceback_of(raised, values=detail.values))
    show_error(error, as_json=as_json)
    return error.exit_code


def _wrong(error: BaseException, *, as_json: bool) -> int:
    """Show a mistake in the command line and return its exit code. A group without a verb has shown its help, and no message."""
    usage = _usage(error)
    if not usage.message:
        return usage.exit_code
    return _ended(usage, detail=_Detail(tracebacks=False, values=False), as_json=as_json)


def _usage(error: BaseException) -> PenstockError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "penstock"
    message = str(getattr(error, "format_message", error.__str__)()).replace(": Value error, ", ": ")
    return Usage(message[:1].upper() + message[1:], remedy=f"See `{command} --help`.")


if __name__ == "__main__":
    main()
