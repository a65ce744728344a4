"""Arguments and options that several verbs share."""

from typing import Annotated

import typer

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace one value of the pipeline file; may be repeated.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this only what would be done is shown.")]
