"""`DirectoryAccount`, a directory as an account."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from penstock.core.high_water_mark import AccountOwner
from penstock.core.model import AccountName, PipelineName, SinkName
from penstock.errors import PenstockError, Usage
from penstock.sink.parquet.account import Account
from penstock.sink.parquet.directory.area import DirectoryArea
from penstock.sink.parquet.directory.marker import read_owner
from penstock.sink.parquet.directory.rename import Move, move, move_by_link
from penstock.sink.parquet.layout import escape

_STAGING, _OWNER = ".penstock-staging", ".owner.json"
_MOVES: Mapping[str, Move] = {"rename": move, "link": move_by_link}
_OPTIONS = ("staging", "publish_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryAccount(Account):
    """`root` holds the table. Staged files wait in `own_staging` if given, else beside the root."""

    publishing: ClassVar = "one move per file"

    root: Path
    own_staging: Path | None = None
    publish: Move = move

    @property
    def url(self) -> str:
        return f"file://{self.root}"

    @property
    def root_for_readers(self) -> str:
        return str(self.root)

    @property
    def root_for_spark(self) -> str:
        return self.url

    @property
    def staging(self) -> str:
        """The directory below which every pipeline and sink has its own."""
        return str(self.own_staging or self.root.parent / _STAGING / self.root.name)

    def area(self, *, pipeline: PipelineName, sink: SinkName, account: AccountName) -> DirectoryArea:
        """Return the part of one sink. The option `staging` may serve several accounts: each has a directory and owner file."""
        staging = Path(self.staging, _segment(pipeline), _segment(sink))
        owner_file = Path(self.staging, _OWNER)
        if self.own_staging is not None:
            staging /= _segment(account or "only")
            owner_file = self.own_staging / f".owner-{sha256(os.fsencode(self.root)).hexdigest()[:16]}.json"
        return DirectoryArea(root=self.root, staging=staging, owner_file=owner_file, publish=self.publish)

    def enclosing(self) -> Iterator[tuple[str, AccountOwner]]:
        """Yield claimed accounts above this one, by the given path and by the path that links lead to.

        An account with the option `staging` is not seen: its claim is elsewhere.
        """
        for outer in dict.fromkeys((*self.root.parents, *Path(os.path.realpath(self.root)).parents)):
            with suppress(OSError, PenstockError):
                owner = read_owner(Path(outer.parent, _STAGING, outer.name, _OWNER))
                if owner is not None:
                    yield f"file://{outer}", owner

    def overlaps(self, other: Account) -> str | None:
        """Return why both cannot be accounts of one sink. An account overlaps itself if its staging lies in its root."""
        if not isinstance(other, DirectoryAccount):
            return None
        if self is not other and _is_within(self.root, other.root):
            return f"{self.root} lies within {other.root}" if self.root != other.root else f"both are {self.root}"
        if _is_within(Path(self.staging), other.root):
            return f"the staging {self.staging} lies within {other.root}, where readers would see it"
        return None


def directory_account(root: "str | os.PathLike[str]", *, options: Mapping[str, Any] | None = None) -> DirectoryAccount:
    """Return the account at an absolute path. Raises Usage.

    Options: `staging`, a directory on the same file system and outside of every account; `publish_by: link` for file systems that
    claim to rename without replacing but do not.
    """
    options = options or {}
    unknown = next((name for name in options if name not in _OPTIONS), None)
    if unknown is not None:
        raise Usage(f"An account that is a directory has no option {unknown!r}.", remedy=f"It has {' and '.join(_OPTIONS)}.")
    publish_by = str(options.get("publish_by", "rename"))
    if publish_by not in _MOVES:
        raise Usage(f"The option publish_by is {publish_by!r}.", remedy=f"Use {' or '.join(_MOVES)}.")
    staging = options.get("staging")
    return DirectoryAccount(
        root=_absolute(root, "An account"),
        own_staging=None if staging is None else _absolute(str(staging), "The option staging"),
        publish=_MOVES[publish_by],
    )


def _absolute(path: "str | os.PathLike[str]", what: str) -> Path:
    plain = Path(os.path.normpath(path))
    if not plain.is_absolute() or plain == Path(plain.anchor):
        raise Usage(
            f"{what} is the path {os.fspath(path)!r}.", remedy="Give an absolute path of a directory below the root directory."
        )
    return plain


def _is_within(path: Path, root: Path) -> bool:
    """Return whether `path` is `root` or below it, with symbolic links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _segment(name: str) -> str:
    escaped = escape(name)
    return escaped.replace(".", "%2E", 1) if escaped.startswith(".") else escaped
