"""`penstock files`, `penstock quarantine list` and `show`: what lies in a table, for other tools, and what in the quarantine."""

import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType

from penstock.cli.opening import File, Json, Overrides, pipeline
from penstock.cli.output import print_line, show
from penstock.cli.table import Fitting, facts
from penstock.support import formatting
from penstock.support.printable import printable

if TYPE_CHECKING:
    from penstock.core.quarantined_record import QuarantinedRecord


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


_ROW_BYTES = 16
_SHOWN_BYTES = 4096
_COLUMNS = ("id", "batch", "replayed", "topic", "partition", "offset", "written", "undecodable", "schema", "error")
_OF_FILES = ("id", "batch", "replayed", "source", "file", "rule", "row")
_OF_SINKS = ("id", "batch", "replayed", "sink", "error", "row")
_DISPENSABLE = ("written", "schema", "batch")


def list_(
    *,
    file: File,
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only those that this batch brought.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Every record in the quarantine: where it came from, and why it is there."""
    show(pipeline(file, overrides).quarantined(batch=batch), as_json=as_json, text=_table)


def show_(
    *,
    file: File,
    record_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Its id in the list.", show_default=False)] = None,
    partition: Annotated[int | None, typer.Option(min=0, metavar="N", help="Its partition.", show_default=False)] = None,
    offset: Annotated[int | None, typer.Option(min=0, metavar="N", help="Its offset.", show_default=False)] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its topic, where the pipeline reads several.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """One record in the quarantine, with its bytes: by its id, or by its partition and offset."""
    found = pipeline(file, overrides).quarantined_record(offset=offset, partition=partition, topic=topic, record_id=record_id)
    show(found, as_json=as_json, text=_record)


def _table(records: "Sequence[QuarantinedRecord]") -> RenderableType:
    if not records:
        return "The quarantine is empty."
    of_kafka = [_row(record) for record in records if record.topic is not None]
    of_files = [(*_head(one), one.source, one.file, one.rule, one.row) for one in records if one.file is not None]
    of_sinks = [(*_head(one), one.sink, one.error, one.row) for one in records if one.sink is not None]
    parts = (
        (of_kafka, Fitting(_COLUMNS, of_kafka, _DISPENSABLE)),
        (of_files, Fitting(_OF_FILES, of_files, ("source", "file"))),
        (of_sinks, Fitting(_OF_SINKS, of_sinks, ())),
    )
    shown = [part for lines, part in parts if lines]
    return Group(shown[0], *(each for part in shown[1:] for each in ("", part)))


def _head(record: "QuarantinedRecord") -> Sequence[object]:
    return (record.id, record.batch, "yes" if record.replayed else None)


def _row(record: "QuarantinedRecord") -> Sequence[object]:
    written = None if record.timestamp_ms is None else formatting.moment_of_year(record.timestamp_ms)
    head = (*_head(record), record.topic, record.partition, record.offset, written)
    return (*head, record.undecodable, record.schema_id, record.error)


def _record(record: "QuarantinedRecord") -> RenderableType:
    known = [("source", record.source), *zip(_COLUMNS, _row(record), strict=True)]
    known += [("sink", record.sink), ("rule", record.rule), ("file", record.file), ("row", record.row)]
    known += [(f"header {name}", value) for name, value in record.headers]
    known += [(f"put aside before, batch {each.batch}", f"{each.error} (id {each.id})") for each in record.history]
    head = facts([(name, value) for name, value in known if value is not None])
    if record.topic is None:
        return head
    return Group(head, *_part("key", record.key), *_part("value", record.value))


def _part(name: str, encoded: str | None) -> Iterator[str]:
    if encoded is None:
        yield f"\n{name}: none"
        return
    data = b64decode(encoded)
    yield f"\n{name}, {formatting.counted(len(data), 'byte')}:"
    for start in range(0, min(len(data), _SHOWN_BYTES), _ROW_BYTES):
        row = data[start : start + _ROW_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<{3 * _ROW_BYTES}} {text}"
    if len(data) > _SHOWN_BYTES:
        yield f"… --json has all {len(data)} bytes."
