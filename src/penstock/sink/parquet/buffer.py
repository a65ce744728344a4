"""Buffers rows in bounded memory until they make a row group."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from penstock.core.model import AccountName
from penstock.sink.parquet.settings import WriteSettings
from penstock.sink.parquet.splitting import Group

Place: TypeAlias = tuple[AccountName, str]
"""An account, and the partition directories below its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows of one place, to be written together."""

    place: Place
    rows: "pa.Table"
    digest: int


@dataclass(slots=True)
class _Waiting:
    rows: int = 0
    size_bytes: int = 0
    groups: list[Group] = field(default_factory=list)


class Buffer:
    """Collects groups by place. Its user writes what `due` yields after each `add`, and at the end what `rest` yields."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._waiting: dict[Place, _Waiting] = {}
        self._held_bytes = 0

    def add(self, group: Group) -> None:
        """Take a group of rows, and a share of the memory that is leased for its chunk."""
        waiting = self._waiting.setdefault((group.account, group.directories), _Waiting())
        waiting.rows += len(group.rows)
        waiting.size_bytes += group.size_bytes
        waiting.groups.append(group)
        self._held_bytes += group.lease.take()

    def due(self) -> Iterator[RowGroup]:
        """Yield whole row groups and, where memory runs short, the largest others."""
        rows, size_bytes = self._settings.row_group_rows, self._settings.row_group_bytes
        for place, waiting in list(self._waiting.items()):
            if waiting.rows >= rows or waiting.size_bytes >= size_bytes:
                yield self._take(place)
        if self._held_bytes > self._settings.buffer_bytes:
            yield from self._make_room()

    def rest(self) -> Iterator[RowGroup]:
        for place in list(self._waiting):
            yield self._take(place)

    def _make_room(self) -> Iterator[RowGroup]:
        """Yield the largest row groups until half of the limit is free, so that the next chunk makes no small ones again."""
        for place in sorted(self._waiting, key=lambda place: -self._waiting[place].size_bytes):
            yield self._take(place)
            if self._held_bytes <= self._settings.buffer_bytes // 2:
                return

    def _take(self, place: Place) -> RowGroup:
        waiting = self._waiting.pop(place)
        self._held_bytes -= sum(group.lease.let_go() for group in waiting.groups)
        return RowGroup(
            place=place,
            rows=pa.concat_tables(group.rows for group in waiting.groups),
            digest=sum(group.digest for group in waiting.groups),
        )
