"""What `penstock check` says about a store: whether it can be used, tried out without a trace, and what it deletes by itself.

Source of lifecycle rules: Amazon S3 API reference, GetBucketLifecycleConfiguration; Cloud Storage JSON API, `buckets`, field
`lifecycle`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.blob.store import BlobStore, Expiry
from penstock.core.model import Finding, new_nonce
from penstock.errors import DependencyMissing, PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """A `TaskCheck` of a store. It opens the store itself, because a task may lack the client library."""

    subject: str
    reopen: Callable[[], BlobStore] = field(repr=False)
    folder: str

    def findings(self) -> Sequence[Finding]:
        try:
            return [check_store(self.reopen(), subject=self.subject, folder=self.folder)]
        except DependencyMissing as missing:
            return [Finding(subject=self.subject, ok=False, message=str(missing))]


def check_store(store: BlobStore, *, subject: str, folder: str) -> Finding:
    """Return whether objects can be written, created once, listed, read and deleted in a scratch folder."""
    try:
        wrong = _tried(store, f"{folder}check/")
    except PenstockError as error:
        return Finding(subject=subject, ok=False, message=f"{error.message} {error.remedy}")
    return Finding(subject=subject, ok=wrong is None, message=wrong or "can be written, read, listed and deleted from.")


def _tried(store: BlobStore, folder: str) -> str | None:
    key = f"{folder}{new_nonce()}"
    store.put_if_absent(key, b"first", tag="check")  # "it exists" may be the answer to the client's own repetition
    twice = store.put_if_absent(key, b"second", tag="check")
    listed = any(found.key == key for found in store.list(folder))
    data = store.get(key)
    store.delete(key)
    if twice:
        return "created one object twice: it ignores If-None-Match, so no ledger can be kept there."
    if data != b"first":
        return "what was written is not what is read."
    return None if listed else "does not list what was written."


OUTAGE_DAYS = 7
"""How long a decision may have to wait for an account: a week in which it is unreachable, or nobody starts the pipeline."""

_LOST = "rows that are decided and wait longer to be published are lost."

_OF_OLD_VERSIONS = frozenset({"numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore"})
_OF_CUSTOM_TIME = frozenset({"daysSinceCustomTime", "customTimeBefore"})


def expiries_of_s3(rules: Sequence[Mapping[str, Any]]) -> Iterator[Expiry]:
    """Yield the enabled rules, without those for objects with certain tags: Penstock's objects have no such tags."""
    for rule in rules:
        chosen = rule.get("Filter", {})
        both = chosen.get("And", chosen)
        if rule.get("Status") != "Enabled" or "Tag" in both or both.get("Tags"):
            continue
        named = {"rule": str(rule.get("ID", "without a name")), "prefix": str(both.get("Prefix", rule.get("Prefix", "")))}
        abort, expire = rule.get("AbortIncompleteMultipartUpload"), rule.get("Expiration", {})
        if abort is not None:
            yield Expiry(**named, of_uploads=True, days=abort.get("DaysAfterInitiation"))
        if "Days" in expire or "Date" in expire:
            yield Expiry(**named, of_uploads=False, days=expire.get("Days"))


def expiries_of_gcs(rules: Sequence[Mapping[str, Any]]) -> Iterator[Expiry]:
    """Yield the rules that delete objects as Penstock writes them: live, and without a custom time."""
    for number, rule in enumerate(rules, 1):
        condition = rule.get("condition", {})
        if rule.get("action", {}).get("type") != "Delete" or condition.get("isLive") is False:
            continue
        if condition.keys() & (_OF_OLD_VERSIONS | _OF_CUSTOM_TIME):
            continue
        for prefix in condition.get("matchesPrefix") or [""]:
            yield Expiry(rule=f"number {number}", of_uploads=False, prefix=prefix, days=condition.get("age"))


def expiry_finding(store: BlobStore, *, kept: str, called: str, uploads: bool) -> Finding:
    """Return whether the store deletes uploads too early (if `uploads`), or ever deletes objects in the folder `kept`.

    `called` is what messages call that folder.
    """
    subject = f"lifecycle of {store.url}"
    try:
        rules = [rule for rule in store.deletes_by_itself(kept) if not rule.of_uploads]
        if uploads:
            rules = [*(rule for rule in store.deletes_by_itself() if rule.of_uploads), *rules]
    except PenstockError as error:
        return Finding(subject=subject, ok=True, message=_unknown_rules(error))
    wrong = [_complaint(rule, called) for rule in rules if not rule.of_uploads or rule.days is None or rule.days < OUTAGE_DAYS]
    if wrong:
        return Finding(subject=subject, ok=True, warns=True, message=" ".join(wrong))
    waits = min((rule.days for rule in rules if rule.days is not None), default=None)
    after = "" if waits is None else f"; what waits to be published is deleted after {waits} days"
    return Finding(subject=subject, ok=True, message=f"nothing that must stay is deleted{after}.")


def waiting_finding(store: BlobStore) -> Finding:
    """Return whether the store ever deletes objects that wait to be published, however long they wait."""
    subject = f"lifecycle of {store.url}"
    try:
        rules = [rule for rule in store.deletes_by_itself() if not rule.of_uploads]
    except PenstockError as error:
        return Finding(subject=subject, ok=True, message=_unknown_rules(error))
    if rules:
        emptying = [
            f"Rule {rule.rule} deletes objects {_when(rule)} they were written: {_LOST} Except this place from it."
            for rule in rules
        ]
        return Finding(subject=subject, ok=True, warns=True, message=" ".join(emptying))
    return Finding(subject=subject, ok=True, message="nothing is deleted while a batch waits to be published.")


def _unknown_rules(error: PenstockError) -> str:
    return f"its rules for deleting cannot be read, so check them yourself: {error.message}"


def _complaint(rule: Expiry, called: str) -> str:
    if rule.of_uploads:
        return f"Rule {rule.rule} ends uploads {_when(rule)} they began: {_LOST} Give them {OUTAGE_DAYS} days or more."
    return (
        f"Rule {rule.rule} deletes objects {_when(rule)} they were written, {called} too, which must stay. "
        "Except that folder from it."
    )


def _when(rule: Expiry) -> str:
    return "on a fixed date, whenever" if rule.days is None else f"{rule.days} day{'' if rule.days == 1 else 's'} after"
