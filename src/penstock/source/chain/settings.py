"""Settings of a source `format: penstock` as they reach the processes that read: text options of a data source.

Every worker imports it, so it needs no library that validates pipeline files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.core.topics import SourceName
from penstock.errors import Usage

if TYPE_CHECKING:
    from penstock.spec.pipeline import DeliverySettings
    from penstock.spec.source import Source

FORMAT = "penstock"
"""The data source's name in Spark."""
NAME, PATH, COLUMNS, FIXED = "penstock.source", "path", "penstock.columns", "penstock.fixedcolumns"
"""`path` is what `load` takes; the others are options that only Penstock gives: the source's name, Spark's JSON of the stream's
columns, and whether the user chose these."""

DEFAULT_FILES = 1_000
"""How many files a batch has at most, unless options say otherwise, but for those of a single batch of the table."""

Start: TypeAlias = Literal["earliest", "latest"] | int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """One source. `path`: the pipeline file of the pipeline that fills the table. `sink`: None for the only one.

    `accounts`: None for all. `columns`: Spark's JSON of the stream's columns, None before they are known.
    """

    name: str
    path: Path
    sink: str | None = None
    accounts: tuple[str, ...] | None = None
    start: Start = "earliest"
    fails_on_loss: bool = True
    max_batches: int | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    columns: str | None = None
    has_fixed_columns: bool = False


def is_chained(source: "Source") -> bool:
    """Return whether the source is a table that a pipeline fills."""
    return (source.format or "").lower() == FORMAT


def data_source_options(name: str, source: "Source") -> Mapping[str, str]:
    """Return the options of the data source for `source`."""
    return {**source.options, NAME: name, PATH: str(_absolute(source.path or ""))}


def chained_sources(settings: "DeliverySettings") -> Mapping[SourceName, ChainSettings]:
    """Return the sources that are tables of other pipelines. No file is looked at."""
    sources: Mapping[str, Source] = getattr(settings, "sources", {})
    return {
        SourceName(name): settings_in(data_source_options(name, source)) for name, source in sources.items() if is_chained(source)
    }


def settings_in(options: Mapping[str, str]) -> ChainSettings:
    """Return the settings in the data source's options, in whatever case their keys arrive. Raises Usage."""
    from penstock.spec.chain_options import chain_complaints  # noqa: PLC0415 - with pydantic, which a task does not need

    lowered = {key.lower(): value for key, value in options.items()}
    own = {key: lowered.pop(key) for key in (NAME, PATH, COLUMNS, FIXED) if key in lowered}
    if not own.get(PATH):
        raise Usage(
            "A stream of format penstock has no path.", remedy='Write .load("flights.yaml"), the file of the pipeline to be read.'
        )
    wrong = next(chain_complaints(lowered, path=own[PATH]), None)
    if wrong is not None:
        raise Usage(f"The option {wrong.at[0]} of format penstock {wrong.message}.", remedy=wrong.remedy)
    given = _limits(lowered)
    return ChainSettings(
        name=own.get(NAME, FORMAT),
        path=_absolute(own[PATH]),
        sink=lowered.get("sink"),
        accounts=_names(lowered.get("accounts")),
        start=_start(lowered.get("startingbatch", "earliest").lower()),
        fails_on_loss=lowered.get("failondataloss", "true").lower() == "true",
        columns=own.get(COLUMNS),
        has_fixed_columns=own.get(FIXED) == "true",
        **(given if any(given.values()) else {**given, "max_files": DEFAULT_FILES}),
    )


def _limits(options: Mapping[str, str]) -> dict[str, int | None]:
    names = {"max_batches": "maxbatchespertrigger", "max_files": "maxfilespertrigger", "max_bytes": "maxbytespertrigger"}
    return {key: int(options[name]) if name in options else None for key, name in names.items()}


def _absolute(path: str) -> Path:
    from penstock.spec.place import local_path  # noqa: PLC0415 - with pydantic

    found = local_path(path)
    if found is None:
        raise Usage(
            f"The path {path} of format penstock is not on this machine.",
            remedy="Name the pipeline file by a path on the driver's machine; its accounts and ledger may be anywhere.",
        )
    return found.expanduser().absolute()


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _start(text: str) -> Start:
    if text == "latest":
        return "latest"
    return "earliest" if text == "earliest" else int(text)
