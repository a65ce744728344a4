"""Files that a writer left behind: temporary ones, and checksums of files that are gone."""

import re
from collections.abc import Iterator

from penstock.checkpoint.act import ACTS, Draft, newest_entries
from penstock.checkpoint.files import Files, places_below
from penstock.checkpoint.source_log import entries_in

_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?|.*\.tmp|\..+\.copying")
_NUMBER = re.compile(r"\.*(\d+)")


def remove_leftovers(draft: Draft) -> None:
    """Remove temporary files, and each checksum whose file is gone, if no start reads a file of that age any more.

    A newer checksum without its file shows that the file was lost, and stays: see `lost_files`.
    """
    for place in sorted(places_below(draft, ""), key=len):
        name = place.rpartition("/")[2]
        if place.startswith(f"{ACTS}/"):
            continue
        if _TEMPORARY.fullmatch(name):
            draft.delete(place, reason="a writer that died left it")
        elif _is_lone_checksum(draft, place) and _is_old(draft, place):
            draft.delete(place, reason="the checksum of a file that is gone")


def lost_files(files: Files) -> Iterator[str]:
    """Yield the newest entries of both logs of which only the checksum is left: Spark renames a file before its checksum."""
    for log in ("offsets", "commits"):
        for name in files.names(log):
            place = f"{log}/{name}"
            if _is_lone_checksum(files, place) and not _is_old(files, place):
                yield f"{log}/{name.removeprefix('.').removesuffix('.crc')}"


def _is_lone_checksum(files: Files, place: str) -> bool:
    """Return whether a file is a checksum, and what it is of does not exist. `.N.crc` is Hadoop's, `N.crc` Spark's own."""
    folder, slash, name = place.rpartition("/")
    if not name.endswith(".crc") or files.size_bytes(place) is None:
        return False
    of = {name.removesuffix(".crc"), name.removeprefix(".").removesuffix(".crc")}
    return all(files.size_bytes(f"{folder}{slash}{one}") is None for one in of)


def _is_old(files: Files, place: str) -> bool:
    folder, _, name = place.rpartition("/")
    number = _NUMBER.match(name)
    if number is None:
        return bool(folder)
    if folder.startswith("sources/"):
        entries = entries_in(files.names(folder))
        return int(number[1]) < max((log_id for one, log_id in entries.items() if one.endswith(".compact")), default=0)
    newest = newest_entries(files).planned or 0
    return int(number[1]) < (newest if folder == "commits" else newest - 1)  # Spark reads one commit, and two of the others
