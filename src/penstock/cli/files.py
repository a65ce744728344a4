"""`penstock files`: prints the files of a table as of a batch, one URL per line, for other tools."""

import sys
from typing import Annotated

import typer

from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import print_line
from penstock.support.printable import printable


def files(
    *,
    file: File,
    sink: Annotated[
        str | None, typer.Option(metavar="NAME", help="The sink; may be left out if only one has files.", show_default=False)
    ] = None,
    account: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this account; may be repeated.", show_default=False)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="As of this batch, not the newest whole one.", show_default=False)
    ] = None,
    added: Annotated[bool, typer.Option("--added", help="Only the files that this batch added, as they were then.")] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """The exact files of a table as of the newest batch that every account shows: path or URL, one a line."""
    opened = pipeline(file, overrides)
    found = opened.read(sink, account, batch, added=added, counted=as_json)
    if as_json:
        print_line({"pipeline": opened.settings.pipeline, "sink": found.sink, "as_of": found.as_of, "files": found.files})
    else:
        shown = printable if sys.stdout.isatty() else str
        sys.stdout.writelines(f"{shown(url)}\n" for url in found.urls())
