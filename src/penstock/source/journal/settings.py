"""Settings of a journal's reader as they reach the processes that read: text options of a data source.

Every worker imports it, so it needs no library that validates pipeline files.
"""

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FORMAT = "penstock_journal"
"""The data source's name in Spark."""
NAME, READER, PATH = "penstock.source", "penstock.reader", "penstock.path"
"""Options that only Penstock gives: the source's name, the name that its reader is registered by, and the journals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """One source. `pattern` names the directory of a journal, or with wildcards those of several."""

    name: str
    reader: str
    pattern: str
    begins_at_end: bool = False
    max_records: int | None = None
    max_bytes: int | None = None

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
        pattern=lowered[PATH],
        begins_at_end=lowered.get("startingoffsets", "earliest").lower() == "latest",
        max_records=_count(lowered.get("maxrecordspertrigger")),
        max_bytes=_count(lowered.get("maxbytespertrigger")),
    )


def reader_name(pipeline: str, source: str) -> str:
    """Return the name by which the source of a pipeline is registered at its journals."""
    return f"{pipeline}/{source}"


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)
