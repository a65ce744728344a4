"""`ObjectAccount`, a bucket, container or HDFS directory as an account."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.blob import BlobStore, open_store
from penstock.blob.url import BlobUrl, parse
from penstock.core.high_water_mark import AccountOwner
from penstock.core.model import AccountName, PipelineName, RequestEstimate, SinkName
from penstock.errors import PenstockError, Usage
from penstock.sink.parquet.account import Account
from penstock.sink.parquet.layout import owner_of
from penstock.sink.parquet.object.area import ObjectArea, own_folder, owner_in

_UNORDERED = "--x-s3"
"""The suffix in the names of S3 directory buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAccount:
    """The table lies at the root of `store`, which is at `place`. `reopen` opens it in a task, `open_at` opens another URL."""

    place: BlobUrl
    store: BlobStore
    reopen: Callable[[], BlobStore] = field(repr=False)
    open_at: Callable[[str], BlobStore] = field(repr=False)

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def root_for_readers(self) -> str:
        return self.store.url

    @property
    def root_for_spark(self) -> str:
        return self.place.for_hadoop

    @property
    def staging(self) -> str:
        small = "; small files in the decision, those of all tasks as one" if self.store.dates_requests else ""
        return f"uploads to {self.store.url} that are not completed{small}"

    @property
    def publishing(self) -> str:
        small = ", one put for a small one" if self.store.dates_requests else ""
        return f"one completion and one look-up per file{small}"

    def area(self, *, pipeline: PipelineName, sink: SinkName, account: AccountName) -> ObjectArea:  # noqa: ARG002 - one signature
        return ObjectArea(store=self.store, folder=own_folder(pipeline, sink), owner=owner_of(pipeline, sink), reopen=self.reopen)

    def enclosing(self) -> Iterator[tuple[str, AccountOwner]]:
        """Yield the enclosing accounts whose owner this user may read."""
        folders = self.place.prefix.split("/") if self.place.prefix else []
        for depth in range(len(folders)):
            outer = str(replace(self.place, prefix="/".join(folders[:depth])))
            with suppress(PenstockError):
                owner = owner_in(self.open_at(outer))
                if owner is not None:
                    yield outer, owner

    def requests_sent(self) -> Mapping[str, int]:
        return self.store.requests_sent()

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        # a look at the marker and a put, or an upload, its completion and a look; then the marker is put
        each = self.store.requests_each
        uploaded = each.begin + each.part + each.complete + each.look + each.put
        small = each.list + each.get + each.put + each.put if self.store.dates_requests else uploaded
        return {self.url: RequestEstimate(small=small, uploaded=uploaded)}

    def overlaps(self, other: Account) -> str | None:
        if self is other or not isinstance(other, ObjectAccount):
            return None
        mine, theirs = self.place, other.place
        if (mine.kind, mine.bucket, mine.host) != (theirs.kind, theirs.bucket, theirs.host):
            return None
        if f"{mine.prefix}/".startswith(f"{theirs.prefix}/" if theirs.prefix else ""):
            return f"{mine} lies within {theirs}" if mine != theirs else f"both are {mine}"
        return None


def object_account(url: str, *, options: Mapping[str, Any] | None = None) -> ObjectAccount:
    """Return the account at `url`. Raises Usage, DependencyMissing."""
    reopen = partial(open_store, url, options=dict(options or {}))
    place = parse(url)
    if place.kind == "s3" and place.bucket.endswith(_UNORDERED):
        raise Usage(
            f"{place} is in a directory bucket (S3 Express One Zone), which lists in no order, so the newest mark is not found.",
            remedy="Give the account a general purpose bucket.",
        )
    open_at = partial(open_store, options=dict(options or {}))
    return ObjectAccount(place=place, store=reopen(), reopen=reopen, open_at=open_at)
