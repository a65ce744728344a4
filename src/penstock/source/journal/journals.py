"""The journals that a pipeline reads: what it releases there, and how far it is behind."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.core.model import OffsetRange, SourceName
from penstock.errors import PenstockError, Retryable
from penstock.journal.access import JournalAccess
from penstock.journal.reading import Extent
from penstock.journal.storage import LocalStorage
from penstock.source.journal.settings import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    NAME,
    PATH,
    READER,
    TOKEN,
    URLS,
    JournalSettings,
    reader_name,
    settings_in,
)
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.place import local_path
from penstock.spec.source import Source
from penstock.support.secret import scrub

_US_PER_MS = 1_000
_PATIENCE_S = 5.0

Needed = Mapping[SourceName, Mapping[str, int]]
"""The first event that is needed, by source and journal."""


def is_journal(source: Source) -> bool:
    """Return whether the source reads journals."""
    return (source.format or "").lower() == "journal"


def data_source_options(name: str, source: Source, *, pipeline: str) -> Mapping[str, str]:
    """Return the options of the data source for `source`."""
    tls = source.tls
    given = {
        PATH: None if source.url else str(local_path(source.path or "")),
        URLS: " ".join(source.url) or None,
        TOKEN: source.token,
        CA_FILE: None if tls is None else tls.ca_file,
        CERTIFICATE_FILE: None if tls is None else tls.certificate_file,
        KEY_FILE: None if tls is None else tls.key_file,
    }
    named = {NAME: name, READER: reader_name(pipeline, name)}
    return {**source.options, **named, **{key: value for key, value in given.items() if value is not None}}


def journals_of(settings: DeliverySettings) -> "Journals | None":
    """Return the journals that a pipeline reads, None if it reads none. No file is looked at."""
    found = {
        SourceName(name): _impatient(settings_in(data_source_options(name, source, pipeline=settings.pipeline)))
        for name, source in getattr(settings, "sources", {}).items()
        if is_journal(source)
    }
    return Journals(found) if found else None


def _impatient(settings: JournalSettings) -> JournalSettings:
    """Return the settings for looks beside the query, which must not be held up by a receiver that does not answer."""
    return replace(settings, endpoint=replace(settings.endpoint, patience_s=_PATIENCE_S)) if settings.urls else settings


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLag:
    """Lag of one journal. `records`: events not delivered yet; `behind_ms`: how long ago the oldest of them came.

    `lost`: events that were not delivered and are gone.
    """

    source: SourceName
    journal: str
    journal_id: str
    records: int
    behind_ms: int | None
    lost: int


class Journals:
    """The journals of one pipeline, by source."""

    def __init__(self, sources: Mapping[SourceName, JournalSettings]) -> None:
        self._sources = sources

    def release(self, offsets: Mapping[SourceName, str | None]) -> tuple[str, ...]:
        """Release all events before `offsets`, as Spark logs them: Spark reads them no more. Return warnings."""
        warnings = []
        for source, settings in self._sources.items():
            needed = offset_in(offsets.get(source))
            try:
                for journal, extent in _extents(settings):
                    if extent.journal_id in needed:
                        journal.release(settings.reader, extent, below=needed[extent.journal_id])
            except (PenstockError, OSError) as error:  # it must not stop a batch: segments stay for longer
                warnings.append(f"Nothing is released in the journals of {source!r}: {scrub(str(error))}")
        return tuple(warnings)

    def missing(self, ranges: Sequence[OffsetRange]) -> Iterator[str]:
        """Yield what is missing of the events of a batch, by source, as the end of a sentence. Raises PenstockError, OSError."""
        for source, place, gone in self._gone({each.source: _firsts(each) for each in ranges}):
            are_events = gone.startswith("events")
            what = f"{gone} of the journal at {place} are not there any more" if are_events else f"{gone} is not at {place}"
            yield f"source {source}: {what}"

    def gone(self, needed: Needed) -> Iterator[str]:
        """Yield what is gone of the events from `needed` on. Raises PenstockError, OSError."""
        for _, place, gone in self._gone(needed):
            yield f"{gone} of the journal at {place}" if gone.startswith("events") else f"{gone}, which is not at {place}"

    def register(self, needed: Needed) -> None:
        """Register a reader that begins with `needed`, and with the first event of every other journal. Raises as `hold`."""
        self._hold(needed, others=True)

    def hold(self, needed: Needed) -> None:
        """Take back, durably, what was released of the events from `needed` on: what is still there of them stays from now on.

        A journal that no offset of Spark's names is then read from there. Raises Retryable.
        """
        self._hold(needed, others=False)

    def _hold(self, needed: Needed, *, others: bool) -> None:
        for source, firsts in needed.items():
            settings = self._sources[source]
            try:
                for journal, extent in _extents(settings):
                    if extent.journal_id in firsts:
                        journal.hold(settings.reader, extent, needed=firsts[extent.journal_id], planned=0)
                    elif others:
                        journal.begin(settings.reader, extent, at_end=False)
            except OSError as error:
                raise Retryable(
                    f"What source {source!r} released in the journals at {settings.place} cannot be taken back: "
                    f"{scrub(str(error))}.",
                    remedy="Let this user write into their directories `readers`, and try again.",
                ) from error

    def needed_again(self, before: Sequence[OffsetRange], newest: Sequence[OffsetRange]) -> Needed:
        """Return what is read again if a query goes from the end of batch `newest` back to that of batch `before`.

        Of a journal that came after `before`, that is everything from where the query began to read it.
        """
        delivered = {each.source: offset_in(each.end) for each in before}
        return {
            each.source: {**_begins_in(each.end), **delivered.get(each.source, {})}
            for each in newest
            if each.source in self._sources
        }

    def behind(self, offsets: Iterable[str | None]) -> Needed:
        """Return the first events behind `offsets`, as Spark logs those of all sources; other sources' are left out."""
        ends = dict[str, int]()
        for text in offsets:
            with suppress(ValueError, TypeError, AttributeError):  # an offset of another kind of source
                ends |= offset_in(text)
        return dict.fromkeys(self._sources, ends)

    def _gone(self, needed: Needed) -> Iterator[tuple[SourceName, str, str]]:
        """Yield source, place and what is gone there."""
        for source, settings in self._sources.items():
            firsts = needed.get(source, {})
            extents = {extent.journal_id: extent for _, extent in _extents(settings)} if firsts else {}
            for journal_id, first in firsts.items():
                extent = extents.get(journal_id)
                if extent is None:
                    yield source, settings.place, f"the journal {journal_id}"
                elif first < extent.first:
                    yield source, settings.place, f"events {first} to {extent.first - 1}"

    def lag(self, offsets: Mapping[SourceName, str | None], *, now_ms: int) -> Iterator[JournalLag]:
        """Yield the lag of every journal behind `offsets`. Raises PenstockError, OSError."""
        for source, settings in self._sources.items():
            delivered = offset_in(offsets.get(source))
            for journal, extent in _extents(settings):
                next_ = delivered.get(extent.journal_id, extent.first)
                yield JournalLag(
                    source=source,
                    journal=journal.place,
                    journal_id=extent.journal_id,
                    records=max(0, extent.next - max(next_, extent.first)),
                    behind_ms=_behind_ms(journal, extent, max(next_, extent.first), now_ms),
                    lost=max(0, extent.first - next_),
                )


def offset_in(text: str | None) -> Mapping[str, int]:
    """Return the next sequence number by the journal's id, from a journal source's offset as Spark logs it."""
    return {} if text is None else {str(journal_id): int(next_) for journal_id, (_, next_) in json.loads(text).items()}


def _begins_in(text: str | None) -> Mapping[str, int]:
    """Return the first sequence number that a query read at all, by the journal's id, from an offset as Spark logs it."""
    return {} if text is None else {str(journal_id): int(begin) for journal_id, (begin, _) in json.loads(text).items()}


def _firsts(offsets: OffsetRange) -> Mapping[str, int]:
    """Return the first event of a batch by the journal's id, for the journals of which it has any."""
    starts, ends = offset_in(offsets.start), json.loads(offsets.end or "{}")
    firsts = {str(journal_id): starts.get(journal_id, int(begin)) for journal_id, (begin, _) in ends.items()}
    return {journal_id: first for journal_id, first in firsts.items() if first < ends[journal_id][1]}


def describe_lag(lag: JournalLag) -> str:
    """Describe the lag of one journal in a sentence."""
    if lag.lost:
        return f"journal {lag.journal}: {lag.lost:,} events that were not delivered are gone"
    if lag.records == 0:
        return f"journal {lag.journal}: everything is delivered"
    return f"journal {lag.journal}: {lag.records:,} events behind"


def _extents(settings: JournalSettings) -> Iterator[tuple[JournalAccess, Extent]]:
    for journal in settings.journals(LocalStorage(), now_us=_now_us):
        extent = journal.extent()
        if extent is not None:
            yield journal, extent


def _now_us() -> int:
    return time.time_ns() // 1_000


def _behind_ms(journal: JournalAccess, extent: Extent, next_: int, now_ms: int) -> int | None:
    if next_ >= extent.next:
        return None
    oldest = next(journal.read(next_, next_ + 1, journal_id=extent.journal_id, at=None))
    return max(0, now_ms - oldest.received_at_us // _US_PER_MS)
