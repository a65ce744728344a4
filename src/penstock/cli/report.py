"""`penstock report`: the page of one or several pipelines as one file, without Spark and without a server."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.metrics import require_told_apart
from penstock.cli.opening import Json, OverridesOfEach, pipeline
from penstock.cli.output import show
from penstock.core.model import new_nonce
from penstock.errors import Failed, Usage
from penstock.support import formatting


def report(
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="The pipeline files.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="The file to write.", show_default=False)],
    overrides: OverridesOfEach = None,
    as_json: Json = False,
) -> None:
    """Write where pipelines stand as a page of HTML: state, batches, what waits, sinks, errors, history.

    Works beside running drivers and without them, and without Java. The file is smaller than 200 kB and needs nothing else.
    """
    from penstock.observe.page.report import report as page_of

    pipelines = [pipeline(file, overrides) for file in files]
    names = [found.settings.pipeline for found in pipelines]
    require_told_apart(names)
    page = page_of([found.watched() for found in pipelines], now_ms=time.time_ns() // 1_000_000).encode()
    _write(output, page)
    text = f"{output}: {', '.join(names)}, {formatting.size(len(page))}"
    show({"path": str(output), "pipelines": names, "bytes": len(page)}, as_json=as_json, text=lambda _: text)


def _write(path: Path, page: bytes) -> None:
    """Put the page in place whole: somebody may be reading the one before. Raises Usage, Failed."""
    if path.is_dir():
        raise Usage(f"{path} is a directory, and the report is a file.", remedy=f"Name a file in it: -o {path / 'report.html'}")
    partial = path.with_name(f".{path.name}-{new_nonce()}")
    try:
        partial.write_bytes(page)
        partial.replace(path)
    except OSError as cause:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise Failed(
            f"The report cannot be written to {path}: {cause.strerror}.",
            remedy="Give a path in a directory that exists and can be written to, such as -o report.html",
        ) from cause
