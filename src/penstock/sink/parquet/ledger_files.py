"""An index of the files that the ledger decided: by which batch, and how far back the ledger goes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.core.model import AccountName, Position, Publication, Staged
from penstock.sink.parquet.layout import attempt_of

_STEM = re.compile(r"part-g\d+-b\d+-p\d+-t\d+-[0-9a-f]{16}-\d{5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedFile:
    """One decided file and the publication it belongs to."""

    piece: Staged
    publication: Publication


@dataclass(slots=True)
class LedgerFiles:
    """Decided files by name, by stem and by content, from the retained publications."""

    by_name: dict[tuple[AccountName, str], DecidedFile] = field(default_factory=dict)
    by_stem: dict[str, DecidedFile] = field(default_factory=dict)
    by_content: dict[tuple[int, int], DecidedFile] = field(default_factory=dict)
    newest: Publication | None = None
    oldest: Publication | None = None

    @staticmethod
    def of(known: Iterator[Publication]) -> "LedgerFiles":
        """Return the index of all files that the publications `known`, newest first, name."""
        files = LedgerFiles()
        for publication in known:
            files.newest = files.newest or publication
            files.oldest = publication
            for piece in publication.staged:
                file = DecidedFile(piece=piece, publication=publication)
                files.by_name[piece.account, piece.name] = file
                files.by_content[piece.totals.rows, piece.totals.digest] = file
                found = _STEM.search(piece.name)
                if found is not None:
                    files.by_stem[found[0]] = file
        return files

    def newer_than(self, position: Position, account: AccountName) -> frozenset[str]:
        """Return the names of an account's files that were decided after `position`."""
        return frozenset(
            name
            for (place, name), decided in self.by_name.items()
            if place == account and decided.publication.position > position
        )

    def unchanged_until(self, position: Position, account: AccountName) -> Position:
        """Return `position`, or the newest publication's if none after `position` has files for the account."""
        newest = position if self.newest is None else self.newest.position
        return position if self.newer_than(position, account) else max(position, newest)

    def original_of(self, name: str, content: tuple[int, int]) -> DecidedFile | None:
        """Return the decided file of which another file is a copy: by a part of its name, or by equal rows."""
        found = _STEM.search(name.rpartition("/")[2])
        return (self.by_stem.get(found[0]) if found else None) or self.by_content.get(content)

    def is_forgotten(self, name: str) -> bool:
        """Return whether the file belongs to a batch before the oldest one that the ledger retains."""
        attempt = attempt_of(name)
        if attempt is None or self.oldest is None:
            return False
        oldest = self.oldest
        return (attempt.generation, attempt.batch_id) < (oldest.generation, oldest.batch.batch_id)
