"""Reads for the running pipeline which query owns Spark's checkpoint, and what offsets and files each batch has."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from penstock.checkpoint.entries import (
    ENTRY_ID,
    MENDED,
    RESTORE,
    OffsetsEntry,
    Unreadable,
    entry_ids,
    parse_commit,
    parse_offsets,
    parse_query_id,
    restore_or_plan_anew,
    restore_or_run_again,
)
from penstock.checkpoint.files import open_files
from penstock.checkpoint.input_listing import InputListing
from penstock.checkpoint.source_log import SourceLog, fingerprint, lost_source_logs, torn_sources
from penstock.core.kafka_offset import beginning_in, without_notes
from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, SourcesChanged

_RESTORE = f"{RESTORE} {MENDED}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Location of one source: its keys in an offsets entry (several if its relation is used twice), and its folder."""

    name: SourceName
    keys: tuple[str, ...]
    folder: str

    def offset(self, offsets: Mapping[str, str | None]) -> str | None:
        return next((offsets[key] for key in self.keys if key in offsets), None)

    def is_in(self, offsets: Mapping[str, str | None]) -> bool:
        return any(key in offsets for key in self.keys)


class SparkCheckpoint:
    """Reads the checkpoint directory of one query. Nothing is cached between calls, and no method writes.

    A call costs a few small file reads, whatever the number of batches and of input files.
    """

    def __init__(self, path: str | Path, *, options: Mapping[str, str] | None = None) -> None:
        self.files = open_files(path, options=options)
        self.inputs = InputListing(str(path), options=options)
        """Looks up the input files that the checkpoint names."""

    @property
    def location(self) -> str:
        return self.files.location

    def exists(self) -> bool:
        """Return whether `metadata` or any entry of the offset or commit log exists."""
        if self.files.size_bytes("metadata") is not None:
            return True
        return self.latest_offsets_id() is not None or self.latest_commit_id() is not None

    def query_id(self) -> QueryId | None:
        """Return the query that owns the checkpoint, None if `metadata` is missing. Raises CheckpointDamaged."""
        data = self.files.read("metadata")
        if data is None:
            return None
        try:
            return QueryId(parse_query_id(data))
        except Unreadable as error:
            raise self._damaged(f"metadata {error}", error.remedy or _RESTORE) from None

    def latest_offsets_id(self) -> BatchId | None:
        """Return the newest batch that Spark planned, None if there is none."""
        return max(entry_ids(self.files.names("offsets")), default=None)

    def latest_commit_id(self) -> BatchId | None:
        """Return the newest batch that Spark committed, None if there is none."""
        return max(entry_ids(self.files.names("commits")), default=None)

    def has_state(self) -> bool:
        """Return whether the query keeps state: an operator has a directory below `state`."""
        return len(entry_ids(self.files.names("state"))) > 0

    def offsets(self, batch_id: BatchId) -> OffsetsEntry | None:
        """Return the entry `offsets/<batch_id>`, None if it does not exist. Raises CheckpointDamaged."""
        data = self.files.read(f"offsets/{batch_id}")
        if data is None:
            return None
        try:
            return parse_offsets(data)
        except Unreadable as error:
            remedy = restore_or_plan_anew(batch_id) if batch_id == self.latest_offsets_id() else _RESTORE
            raise self._damaged(f"offsets/{batch_id} {error}", remedy) from None

    def require_readable(self, planned: BatchId | None) -> None:
        """Raise CheckpointDamaged if an entry is damaged or missing that Spark reads at its start.

        These are the newest two plans, the newest commit, and the entries of the sources' logs from the newest compacted one on.
        """
        entry = None if planned is None else self.offsets(planned)
        offsets = {} if entry is None else entry.offsets
        wrong = next(chain(torn_sources(self.files, offsets), lost_source_logs(self.files, offsets)), None)
        if wrong is not None:
            raise self._damaged(wrong.message.rstrip("."), wrong.remedy)
        if planned:
            self._entry(BatchId(planned - 1))
        self._require_newest_commit(planned)

    def _require_newest_commit(self, planned: BatchId | None) -> None:
        newest = self.latest_commit_id()
        data = None if newest is None else self.files.read(f"commits/{newest}")
        if newest is None or data is None:
            return
        try:
            parse_commit(data)
        except Unreadable as error:
            remedy = restore_or_run_again(newest) if newest == planned else _RESTORE
            raise self._damaged(f"commits/{newest} {error}", remedy) from None

    def batch(self, batch_id: BatchId, source_names: Sequence[SourceName]) -> Batch:
        """Return batch `batch_id` as Spark planned it. Called once per batch, after Spark wrote `offsets/<batch_id>`.

        `source_names` has the order of the sources in the query's plan; a relation that the plan has twice is named twice and
        gives one range. The same planned batch always gives an equal value, also after a restart, after compaction of the
        sources' logs and after the input files are gone. Raises SourcesChanged, and CheckpointDamaged if metadata, this entry or
        the one before it is missing or unreadable.
        """
        query_id = self.query_id()
        if query_id is None:
            raise self._damaged("metadata is missing")
        start, end = self._around(batch_id)
        offsets = []
        for place in self._places(batch_id, end, source_names):
            first, last = place.offset(start), place.offset(end.offsets)
            content = self._content(place.folder, first, last)
            offsets.append(OffsetRange(source=place.name, start=without_notes(first), end=without_notes(last), content=content))
        return Batch(query_id=query_id, batch_id=batch_id, offsets=tuple(offsets))

    def input_files(self, batch_id: BatchId, source_names: Sequence[SourceName]) -> Mapping[SourceName, tuple[InputFile, ...]]:
        """Return the input files of a batch for each of its file sources. Arguments and errors are those of `batch`."""
        start, end = self._around(batch_id)
        listed = {
            place.name: self._input_files(place.folder, place.offset(start), place.offset(end.offsets))
            for place in self._places(batch_id, end, source_names)
        }
        return {name: files for name, files in listed.items() if files is not None}

    def files_between(
        self, ranges: Sequence[OffsetRange], source_names: Sequence[SourceName]
    ) -> Mapping[SourceName, tuple[InputFile, ...]]:
        """Return the input files of a batch of this query by its decided offsets, for each of its file sources.

        Works for batches whose offsets entries Spark has removed, as long as the checkpoint has any. Raises SourcesChanged,
        CheckpointDamaged.
        """
        newest = self.latest_offsets_id()
        if newest is None:
            raise self._damaged("there is no entry of the offset log")
        folders = {place.name: place.folder for place in self._places(newest, self._entry(newest), source_names)}
        listed = {each.source: self._input_files(folders.get(each.source, each.source), each.start, each.end) for each in ranges}
        return {name: files for name, files in listed.items() if files is not None}

    def beginnings(self, batch_id: BatchId, source_names: Sequence[SourceName]) -> Mapping[SourceName, str]:
        """Return where sources began, as Kafka offsets: from `sources/<n>/0`, or a note in the end of their first batch.

        Arguments and errors are those of `batch`.
        """
        entry = self._entry(batch_id)
        found = {}
        for place in self._places(batch_id, entry, source_names):
            beginning = beginning_in(place.offset(entry.offsets))
            if not beginning:
                text = (self.files.read(f"sources/{place.folder}/0") or b"").decode("utf-8", "replace")
                beginning = text[text.index("{") :].strip() if "{" in text else None
            if beginning is not None:
                found[place.name] = beginning
        return found

    def keys(self, batch_id: BatchId, source_names: Sequence[SourceName]) -> Mapping[SourceName, tuple[str, ...]]:
        """Return the keys of each source in `offsets/<batch_id>`. Arguments and errors are those of `batch`."""
        return {place.name: place.keys for place in self._places(batch_id, self._entry(batch_id), source_names)}

    def _around(self, batch_id: BatchId) -> tuple[Mapping[str, str | None], OffsetsEntry]:
        return self._entry(BatchId(batch_id - 1)).offsets if batch_id > 0 else {}, self._entry(batch_id)

    def _entry(self, batch_id: BatchId) -> OffsetsEntry:
        entry = self.offsets(batch_id)
        if entry is None:
            raise self._damaged(f"offsets/{batch_id} is missing")
        return entry

    def _places(self, batch_id: BatchId, entry: OffsetsEntry, names: Sequence[SourceName]) -> list[_Place]:
        by_name: dict[SourceName, list[str]] = {}
        for position, name in enumerate(names):
            by_name.setdefault(name, []).append(str(position))
        if entry.named:  # a source that had no record so far is not in the entry
            places = [_Place(name, (name,), name) for name in by_name if name in entry.offsets]
        else:
            places = [_Place(name, tuple(keys), str(folder)) for folder, (name, keys) in enumerate(by_name.items())]
        known = {key for place in places for key in place.keys}
        if not known.issuperset(entry.offsets) or not all(place.is_in(entry.offsets) for place in places):
            raise self._changed(batch_id, entry, names)
        return places

    def _content(self, folder: str, start: str | None, end: str | None) -> str | None:
        files = self._input_files(folder, start, end)
        if files is not None:
            return fingerprint(files)
        if end is None or not ENTRY_ID.fullmatch(end):
            return None
        origin = self.files.read(f"sources/{folder}/0")  # of a count (seconds, records), which does not say where it began
        return None if origin is None else f"origin1:{hashlib.sha256(origin).hexdigest()}"

    def _input_files(self, folder: str, start: str | None, end: str | None) -> tuple[InputFile, ...] | None:
        try:
            return SourceLog(self.files, f"sources/{folder}").between(start, end)
        except CheckpointDamaged:
            if self.files.names(f"sources/{folder}"):
                raise
            raise SourcesChanged(
                f"The checkpoint {self.location} has no log of files sources/{folder}, though the query has a source there.",
                remedy="If the query reads one source twice, name the sources in the order of its plan, that one twice; "
                "otherwise restore the directory from a copy.",
            ) from None

    def _damaged(self, what: str, remedy: str = _RESTORE) -> CheckpointDamaged:
        return CheckpointDamaged(f"In the checkpoint {self.location}, {what}.", remedy=remedy)

    def _changed(self, batch_id: BatchId, entry: OffsetsEntry, names: Sequence[SourceName]) -> SourcesChanged:
        held = ", ".join(entry.offsets) if entry.named else str(len(entry.offsets))
        wanted = ", ".join(names) if entry.named else f"{len(names)} ({', '.join(names)})"
        return SourcesChanged(
            f"The checkpoint {self.location} has other sources in offsets/{batch_id} than the pipeline: {held}, not {wanted}.",
            remedy="Number, order and names of sources must not change under a checkpoint: put the sources back as they were.",
        )
