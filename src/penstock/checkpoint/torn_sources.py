"""Finds entries of the sources' logs that were not written completely. Spark reads them at its start, planned or not."""

import json
import re
from collections.abc import Iterator, Mapping

from penstock.checkpoint.anomaly import RESTORE, Anomaly, Severity
from penstock.checkpoint.entries import ENTRY_ID
from penstock.checkpoint.files import Files
from penstock.checkpoint.source_log import log_offset

_ENTRY = re.compile(rf"({ENTRY_ID.pattern})(\.compact)?")


def torn_sources(files: Files, planned: Mapping[str, str | None]) -> Iterator[Anomaly]:
    """Yield one anomaly for each empty or truncated entry from the newest compacted one on.

    The compacted entry itself is only checked for being empty. `planned` are the offsets of the newest planned batch, by source;
    entries after them belong to no batch. Costs one listing per source, and one read for each of the few entries that are not
    compacted.
    """
    for folder, size_bytes in files.sizes("sources").items():
        if size_bytes is None:
            yield from _torn_in(files, folder, planned.get(folder))


def _torn_in(files: Files, folder: str, planned: str | None) -> Iterator[Anomaly]:
    found = {name: match for name in files.names(f"sources/{folder}") if (match := _ENTRY.fullmatch(name))}
    compacted = max((int(match[1]) for match in found.values() if match[2]), default=-1)
    last = None if planned is None else log_offset(planned)
    for name, match in found.items():
        log_id = int(match[1])
        is_compacted = match[2] is not None
        if log_id < compacted or (log_id == compacted and not is_compacted):
            continue
        how = _how_torn(files, f"sources/{folder}/{name}", look_inside=not is_compacted)
        if how is not None:
            yield _anomaly(folder, name, how, is_unplanned=not is_compacted and last is not None and log_id > last)


def _how_torn(files: Files, name: str, *, look_inside: bool) -> str | None:
    if not files.size_bytes(name):
        return "is empty"
    lines = (files.read(name) or b"").split(b"\n") if look_inside else []
    return "is cut off" if not all(map(_is_whole, lines)) else None


def _is_whole(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _anomaly(folder: str, name: str, how: str, *, is_unplanned: bool) -> Anomaly:
    remedy = f"No batch reads it yet: remove it and sources/{folder}/.{name}.crc, and Spark finds its input again."
    return Anomaly(
        place=f"sources/{folder}/{name}",
        severity=Severity.STOPS,
        message=f"sources/{folder}/{name} {how}.",
        remedy=remedy if is_unplanned else RESTORE,
    )
