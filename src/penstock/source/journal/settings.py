"""Settings of a journal's reader as they reach the processes that read: text options of a data source.

Every worker imports it, so it needs no library that validates pipeline files.
"""

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.journal.access import JournalAccess, LocalJournal
from penstock.journal.storage import Storage
from penstock.source.journal.remote import Endpoint, RemoteJournal

FORMAT = "penstock_journal"
"""The data source's name in Spark."""
NAME, READER, PATH, URLS = "penstock.source", "penstock.reader", "penstock.path", "penstock.urls"
"""Options that only Penstock gives: the source's name, the name that its reader is registered by, and the journals."""
TOKEN, CA_FILE = "penstock.token", "penstock.tls.ca_file"
CERTIFICATE_FILE, KEY_FILE = "penstock.tls.certificate_file", "penstock.tls.key_file"
"""Options for receivers that are read over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """One source. `pattern` names the directory of a journal, or with wildcards those of several; `urls` receivers instead."""

    name: str
    reader: str
    pattern: str = ""
    urls: tuple[str, ...] = ()
    endpoint: Endpoint = field(default_factory=Endpoint)
    begins_at_end: bool = False
    max_records: int | None = None
    max_bytes: int | None = None

    @property
    def place(self) -> str:
        """Where the journals are, for people."""
        return self.pattern or ", ".join(self.urls)

    def journals(self, storage: Storage, *, now_us: Callable[[], int]) -> tuple[JournalAccess, ...]:
        """Return the journals: those in the directories that there are now, or those of all receivers."""
        if self.urls:
            return tuple(RemoteJournal(url, self.endpoint) for url in self.urls)
        return tuple(LocalJournal(storage, home, now_us=now_us) for home in self.homes())

    def journal_at(self, place: str, storage: Storage, *, now_us: Callable[[], int]) -> JournalAccess:
        """Return the journal in that directory, or at that URL."""
        if self.urls:
            return RemoteJournal(place, self.endpoint)
        return LocalJournal(storage, Path(place), now_us=now_us)

    def homes(self) -> tuple[Path, ...]:
        """Return the directories that there are now, in order. A directory may itself have such a name: `clicks[1]`."""
        found = {self.pattern, *glob.glob(self.pattern)}  # noqa: PTH207 - the pattern is absolute
        return tuple(Path(path) for path in sorted(found) if Path(path).is_dir())


def settings_in(options: Mapping[str, str]) -> JournalSettings:
    """Return the settings in the data source's options, in whatever case their keys arrive."""
    lowered = {key.lower(): value for key, value in options.items()}
    return JournalSettings(
        name=lowered[NAME],
        reader=lowered[READER],
        pattern=lowered.get(PATH, ""),
        urls=tuple(lowered.get(URLS, "").split()),
        endpoint=Endpoint(
            token=lowered.get(TOKEN),
            ca_file=lowered.get(CA_FILE),
            certificate_file=lowered.get(CERTIFICATE_FILE),
            key_file=lowered.get(KEY_FILE),
        ),
        begins_at_end=lowered.get("startingoffsets", "earliest").lower() == "latest",
        max_records=_count(lowered.get("maxrecordspertrigger")),
        max_bytes=_count(lowered.get("maxbytespertrigger")),
    )


def reader_name(pipeline: str, source: str) -> str:
    """Return the name by which the source of a pipeline is registered at its journals."""
    return f"{pipeline}/{source}"


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)
