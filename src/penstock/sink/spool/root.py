"""The root of a spool, as `spool:` of the pipeline file names it: opens the place of each sink, and checks the root itself."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.blob import BlobStore, open_store
from penstock.blob.check import StoreCheck, check_store
from penstock.blob.expiry import waiting_finding
from penstock.blob.request_counter import requests_to
from penstock.blob.url import MISSPELT, is_blob, is_misspelt, scheme_of
from penstock.core.model import Finding, PipelineName, SinkName
from penstock.errors import Usage
from penstock.protocols import TaskCheck
from penstock.sink.spool.directory import DirectoryPlace
from penstock.sink.spool.objects import ObjectPlace
from penstock.sink.spool.place import Place, segments
from penstock.support.secret import scheme_only


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRoot:
    """A directory, or the URL of a store with its `options`. A sink gets it as `spool` and passes it to its `Spool`.

    Methods raise Usage if there is no such store, and DependencyMissing if its library is not installed.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def place_of(self, pipeline: PipelineName, sink: SinkName) -> Place:
        """Return the place of one sink. Nothing is connected or created yet."""
        folders = segments(pipeline, sink)
        if not is_blob(self.url):
            return DirectoryPlace(directory=os.path.join(self.url, *folders))
        return ObjectPlace(store=self.store(), folder="/".join((*folders, "")))

    def store(self) -> BlobStore:
        return open_store(self.url, options=self.options)

    def check(self) -> Sequence[Finding]:
        """Return whether a store can be used as it must be; leave nothing behind. A directory is checked at the start."""
        if not is_blob(self.url):
            return []
        reached = check_store(self.store(), subject=self._subject, folder="")
        return [reached, *self.lifecycle()] if reached.ok else [reached]

    def lifecycle(self) -> Sequence[Finding]:
        """Return whether a store deletes pieces before an outage ends. A directory deletes nothing."""
        return [waiting_finding(self.store())] if is_blob(self.url) else []

    def task_checks(self) -> Sequence[TaskCheck]:
        """Return the same checks for tasks. Whether a directory is the driver's, tasks check at the first batch."""
        return [StoreCheck(subject=self._subject, reopen=self.store, folder="")] if is_blob(self.url) else []

    def requests_sent(self) -> Mapping[str, int]:
        if not is_blob(self.url):
            return {}
        url = self.store().url
        return {url: requests_to(url)}

    @property
    def _subject(self) -> str:
        return f"spool {self.url}"


def root_at(place: "SpoolRoot | str | os.PathLike[str]") -> SpoolRoot:
    """Return the root at a path or URL; a path is made absolute. Raises Usage for a URL that names no store."""
    if isinstance(place, SpoolRoot):
        return place
    text = os.fspath(place)
    if scheme_of(text) and not is_blob(text):
        raise Usage(
            f"A spool cannot be at {scheme_of(text)}:, expected a directory or a URL of s3, az, gs or hdfs.",
            remedy="Name the directory where it is mounted; write ./a:b for a directory with a colon in its name.",
        )
    if is_misspelt(text):
        raise Usage(f"The place of a spool is neither a URL nor likely a directory: {scheme_only(text)}.", remedy=MISSPELT)
    return SpoolRoot(url=text if is_blob(text) else str(Path(text).absolute()))
