"""Gives the sources of a checkpoint names, where Spark has known them by their place in the query's plan so far.

Spark does not change the version of an offset log, and refuses names on one of version 1. What differs is how entries are keyed
and what the folders below `sources` are called: the offsets themselves, the commit log and the state are the same.
"""

import json
from collections.abc import Mapping, Sequence

from penstock.checkpoint.act import Act, Draft, newest_entries
from penstock.checkpoint.entries import NO_OFFSET, OffsetsEntry, Severity, Unreadable, entry_ids, parse_offsets
from penstock.checkpoint.files import Files, places_below
from penstock.checkpoint.hadoop_checksum import checksum_name
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId, Json, SourceName
from penstock.errors import CheckpointDamaged, Refused
from penstock.spark.session_settings import SOURCE_EVOLUTION

VERSION = "v2"


def plan_migration(files: Files, *, names: Sequence[SourceName]) -> Act:
    """Return the act after which Spark knows the sources by `names`, which are in the order of their places.

    A batch that is planned and not committed comes again with the same offsets. Raises Refused where an entry has another number
    of sources, CheckpointDamaged if the checkpoint is not as Spark wrote it, before or afterwards.
    """
    newest = newest_entries(files)  # before anything else is read
    outlook = _require_sound(files, "is not as Spark wrote it")
    draft = Draft(files)
    for batch_id in entry_ids(files.names("offsets")):
        place = f"offsets/{batch_id}"
        draft.write(place, _named(files, place, names), reason="offsets by the names of the sources")
        _drop(draft, checksum_name(place))
    for number, name in enumerate(names):
        _move(files, draft, f"sources/{number}", f"sources/{name}")
    if _require_sound(draft, "cannot be gone on from with names") != outlook:
        raise CheckpointDamaged(
            f"With names Spark would go on otherwise from the checkpoint {files.location}.", remedy="Report this."
        )
    return Act(
        verb="migrate",
        request={},
        location=files.location,
        sentence=f"Spark knows the sources by their names afterwards: {', '.join(names)}.",
        steps=draft.steps(),
        next_batch_id=outlook,
        newest=newest,
        newest_after=newest,
    )


def encoded_entry(noted: Mapping[str, Json], offsets: Mapping[SourceName, str | None]) -> bytes:
    """Return the entry of the offset log that keeps `offsets` by the names of their sources; `noted` is its second line."""
    conf = noted.get("conf")
    fields = {**noted, "conf": {**(conf if isinstance(conf, dict) else {}), SOURCE_EVOLUTION: "true"}}
    second = json.dumps({"sourceMetadataInfo": {}, **fields}, separators=(",", ":"), ensure_ascii=False)
    lines = (f"{name}:{offset}" for name, offset in offsets.items() if offset is not None)
    return "\n".join([VERSION, second, *lines]).encode()


def _named(files: Files, place: str, names: Sequence[SourceName]) -> bytes:
    data = files.read(place) or b""
    try:
        entry = parse_offsets(data)
    except Unreadable as error:
        raise CheckpointDamaged(
            f"In the checkpoint {files.location}, {place} {error}.", remedy="Run `penstock checkpoint verify` on it first."
        ) from None
    keys = list(entry.by_key())
    if entry.named or keys != [str(number) for number in range(len(names))]:
        raise Refused(
            f"{place} of the checkpoint {files.location} has sources {', '.join(keys)}, expected {len(names)} by their places.",
            remedy="Take `named_sources` out: the checkpoint goes on as it is.",
        )
    second = data.decode().split("\n")[1]
    return encoded_entry(json.loads(second) if second else {}, _by_name(entry, names))


def _by_name(entry: OffsetsEntry, names: Sequence[SourceName]) -> Mapping[SourceName, str | None]:
    offsets = dict(zip(names, entry.by_key().values(), strict=True))
    # an entry without any offset is not one that can be read: Spark plans no batch without one
    return offsets if any(offset is not None for offset in offsets.values()) else {names[0]: NO_OFFSET}


def _move(files: Files, draft: Draft, old: str, new: str) -> None:
    """Record that the files of one source are below another folder. Nothing says how they are checked there: it goes without."""
    if any(True for _ in places_below(files, new)):
        raise Refused(
            f"The checkpoint {files.location} has a folder {new} already, of another source.",
            remedy="Take `named_sources` out: the checkpoint goes on as it is.",
        )
    for place in places_below(files, old):
        name = place.removeprefix(f"{old}/")
        if not name.startswith("."):
            draft.write(f"{new}/{name}", files.read(place) or b"", reason="what the query has read of the source")
    for place in places_below(files, old):
        draft.delete(place, reason="it is below the source's name now")


def _drop(draft: Draft, place: str) -> None:
    if draft.size_bytes(place) is not None:
        draft.delete(place, reason="the checksum of the entry as it was")


def _require_sound(files: Files, what: str) -> BatchId | None:
    """Return the batch that the next start runs first. Raises CheckpointDamaged for what keeps Spark from going on exactly."""
    found = verify_files(files)
    wrong = next((one for one in found.findings if one.severity is not Severity.HARMLESS), None)
    if wrong is not None:
        raise CheckpointDamaged(
            f"The checkpoint {files.location} {what}: {wrong.meaning.rstrip('.')}.",
            remedy="Run `penstock checkpoint verify` on it.",
        )
    return found.outlook.batch_id
