"""How a batch is divided into requests: a function of its rows and of settings that the decision froze."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa

from penstock.core.model import Json, RowDigest
from penstock.core.row_hash import row_hashes
from penstock.sink.own.json_lines import to_json_lines

Body: TypeAlias = Literal["json_lines", "json_array", "record"]

CONTENT_TYPES: Mapping[Body, str] = {
    "json_lines": "application/x-ndjson",
    "json_array": "application/json",
    "record": "application/json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The body of one request and its name among those of the batch: `<lane>-<first row of the lane>-<last row>`."""

    lane: int
    name: str
    rows: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows become requests. The decision records it (`noted`), since another one would send rows under other names (I8).

    A request has at most `rows` rows and `size_bytes` bytes, but always one row. `lanes` are sent side by side, each in its
    order. Rows with equal `key` columns are in one lane; without a key, the requests take the lanes in turn.
    """

    body: Body
    rows: int
    size_bytes: int
    lanes: int
    key: tuple[str, ...] = ()

    def noted(self) -> Mapping[str, Json]:
        """Return the layout as the `ref` of every piece records it."""
        return {
            "body": self.body,
            "request_rows": self.rows,
            "request_bytes": self.size_bytes,
            "lanes": self.lanes,
            "key": list(self.key),
        }

    def divided(
        self, batches: "Iterable[pa.RecordBatch]", row_digest: RowDigest, *, only: int | None = None
    ) -> Iterator[Request]:
        """Yield the requests of a batch, each lane's in their order; of lane `only`, if given.

        Only what is not yet sent is in memory.
        """
        lanes = [_Lane(number, self) for number in range(self.lanes if self.key else 1)]
        turn = 0
        for batch in batches:
            rows, numbers = self._rows_of(batch, row_digest, only)
            for line, number in zip(to_json_lines(rows), numbers, strict=True):
                for request in lanes[number].add(line.encode()):
                    yield from self._in_turn(request, turn, only)
                    turn += 1
        for lane in lanes:
            for request in lane.rest():
                yield from self._in_turn(request, turn, only)

    def _rows_of(
        self, batch: "pa.RecordBatch", row_digest: RowDigest, only: int | None
    ) -> tuple["pa.RecordBatch", Sequence[int]]:
        """Return the rows that may be in requests of lane `only`, and the number of the `_Lane` that each is in."""
        if not self.key or self.lanes == 1:
            return batch, [0] * batch.num_rows
        numbers = np.asarray(row_hashes(batch.select(list(self.key)), row_digest)) % self.lanes
        if only is None:
            return batch, numbers.tolist()
        rows = batch.filter(pa.array(numbers == only))
        return rows, [only] * rows.num_rows

    def _in_turn(self, request: Request, turn: int, only: int | None) -> Iterator[Request]:
        """Yield `request`, unless another lane than `only` has it: without a key the one whose turn it is. Its name stays."""
        lane = request.lane if self.key else turn % self.lanes
        if only is None or lane == only:
            yield Request(lane=lane, name=request.name, rows=request.rows, body=request.body)


def layout_of(ref: Mapping[str, Json]) -> Layout:
    """Return the layout that `noted` recorded."""
    key = ref["key"]
    assert isinstance(key, list)
    rows, size_bytes, lanes = (int(str(ref[name])) for name in ("request_rows", "request_bytes", "lanes"))
    body = cast("Body", ref["body"])
    return Layout(body=body, rows=rows, size_bytes=size_bytes, lanes=lanes, key=tuple(map(str, key)))


@dataclass(slots=True)
class _Lane:
    """Rows of one lane that are not in a request yet."""

    number: int
    layout: Layout
    lines: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    first: int = 0

    def add(self, line: bytes) -> Iterator[Request]:
        """Take a row; yield the request that it completes or that has no room for it."""
        if self.lines and self.size_bytes + len(line) + 1 > self.layout.size_bytes:
            yield self._request()
        self.lines.append(line)
        self.size_bytes += len(line) + 1
        if len(self.lines) == self.layout.rows:
            yield self._request()

    def rest(self) -> Iterator[Request]:
        if self.lines:
            yield self._request()

    def _request(self) -> Request:
        lines, self.lines, self.size_bytes = self.lines, [], 0
        first, self.first = self.first, self.first + len(lines)
        body = {
            "json_lines": lambda: b"".join(line + b"\n" for line in lines),
            "json_array": lambda: b"[" + b",".join(lines) + b"]",
            "record": lambda: lines[0],
        }[self.layout.body]()
        return Request(lane=self.number, name=f"{self.number}-{first}-{self.first - 1}", rows=len(lines), body=body)
