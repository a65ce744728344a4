"""The task side of the spool: writes the rows of one attempt as one piece, inline or in a file."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.blob.object_file import staging
from penstock.core.codec import encode_document
from penstock.core.deletes import split_deletes
from penstock.core.faults import FaultPoint
from penstock.core.model import ONLY_ACCOUNT, Attempt, Json, SinkName, Staged, Totals
from penstock.core.row_hash import digest
from penstock.errors import StageFailed
from penstock.sink.spool.deletes import StagedDeletes
from penstock.sink.spool.place import Claimed, PieceFile
from penstock.sink.valid_text import require_valid
from penstock.support.filesystem_errors import translate_os_errors

_MOST: Final = 2
"""Pieces in the cache: one is published while the next batch is staged."""
_MOST_BYTES: Final = 64 << 20
"""Size of the largest piece that is cached: four times the size of a batch that the driver is expected to stage."""


class RowCache:
    """The rows of the newest pieces, in the memory in which they arrived. Thread-safe. Pickled, it is None.

    Nothing depends on it: a piece that is not here is read from its file, by this process or by the next one.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Sequence[pa.RecordBatch]] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickle as None: a task does not publish its rows."""
        return type(None), ()

    def put(self, name: str, rows: "Sequence[pa.RecordBatch]") -> None:
        """Cache the rows of a piece whose file is durable, unless they are too large. The oldest piece may have to go."""
        if sum(batch.nbytes for batch in rows) > _MOST_BYTES:
            return
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > _MOST:
                del self._rows[next(iter(self._rows))]

    def rows_of(self, piece: Staged) -> "Sequence[pa.RecordBatch] | None":
        return self._rows.get(piece.name)

    def evict(self, pieces: Iterable[Staged]) -> None:
        with self._lock:
            for piece in pieces:
                self._rows.pop(piece.name, None)


WRITE = FaultPoint("spool.write", "A task writes bytes of a spool piece.", tears=True)
SYNC = FaultPoint("spool.sync", "A task makes a spool piece and its name durable.")

FORMAT, VERSION = "penstock.spool", 1
SUFFIX = ".arrow"

INLINE_LIMIT_BYTES = 100 * 1024
"""Up to this size a piece travels in the decision. On a disk that syncs in 4 ms, a file costs 4 ms more than the same bytes
inline, up to about 500 KB. The limit lies well below that because the ledger retains its entries much longer than the spool."""

RowCheck: TypeAlias = Callable[["pa.RecordBatch"], None]
"""Raises StageFailed for rows that the sink could not publish. Picklable."""


RowHashes: TypeAlias = Callable[["pa.RecordBatch", "pa.UInt64Array"], "pa.UInt64Array"]
"""Returns the hashes of rows as the target will show them, given the rows and their own hashes. Picklable."""


def refused_rows(rows: "pa.RecordBatch", check: RowCheck) -> dict[int, str]:
    """Return the positions of the rows that `check` refuses, each with its message: few are found in many by halving."""
    try:
        if rows.num_rows:
            check(rows)
    except StageFailed as refusal:
        if rows.num_rows == 1:
            return {0: refusal.message}
    else:
        return {}
    half = rows.num_rows // 2
    later = refused_rows(rows.slice(half), check)
    return refused_rows(rows.slice(0, half), check) | {half + place: reason for place, reason in later.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStager:
    """The recipe for spool writers.

    `check` rejects rows that the sink could never publish, before anything is decided; without one, texts must be UTF-8. `hashed`
    hashes rows for a target that does not return all of them as they were. `deletes`: rows have the column of `core.deletes`.
    `label` tells pieces of one attempt apart in their names, where several tables share the spool.
    `note` is what the sink wants to find again in `ref` of every piece, where the decision freezes it. `cache` also keeps the
    rows in memory; it is None in a task.
    """

    sink: SinkName
    claimed: Claimed
    check: RowCheck | None = None
    hashed: "RowHashes | None" = None
    deletes: StagedDeletes | None = None
    inline_limit_bytes: int = INLINE_LIMIT_BYTES
    note: Mapping[str, Json] = field(default_factory=dict)
    cache: RowCache | None = None
    label: str = ""

    def open(self, attempt: Attempt, schema: "pa.Schema") -> "SpoolWriter":
        return SpoolWriter(self, attempt, schema)

    def refused(self, rows: "pa.RecordBatch", accounts: "pa.StringArray | None") -> Mapping[int, str]:  # noqa: ARG002 - no route
        """Return the rows that the sink could not publish, each with the reason. Rows that delete are not among them."""
        if self.deletes is None:
            return refused_rows(rows, self.require_fit)
        plain, deletes = split_deletes(rows)
        places = np.flatnonzero(~deletes.to_numpy(zero_copy_only=False)).tolist()
        found = refused_rows(plain.take(pa.array(places, pa.int64())), self.require_fit)
        return {places[at]: reason for at, reason in found.items()}

    def require_fit(self, rows: "pa.RecordBatch") -> None:
        """Raise StageFailed for rows, without the column of rows that delete, which the sink could not publish."""
        if self.check is None:
            require_valid(rows, sink=self.sink)
        else:
            self.check(rows)

    def requests_sent(self) -> Mapping[str, int]:
        return self.claimed.place.requests_sent()


class SpoolWriter:
    """Stages the rows of one attempt as one piece."""

    def __init__(self, stager: SpoolStager, attempt: Attempt, schema: "pa.Schema") -> None:
        self._stager = stager
        self._attempt = attempt
        self._schema = schema if stager.deletes is None else stager.deletes.schema_of(schema)
        self._name = attempt.token + stager.label + SUFFIX
        self._rows, self._digest = 0, 0
        self._in_memory: list[pa.RecordBatch] = []
        self._target: _Target | None = None
        self._stream: Any = None

    def write(self, rows: "pa.RecordBatch", *, hashes: "pa.UInt64Array", accounts: "pa.StringArray | None") -> None:
        assert accounts is None, "a spooled sink has one place and no route"
        if rows.num_rows == 0:
            return
        self._require_fit(rows)
        if self._stager.deletes is not None:
            rows, hashes = self._stager.deletes.bare(rows, hashes)
        conform = self._conform(rows)
        with self._translate_errors():
            self._open_stream().write_batch(conform)
        if self._stager.cache is not None:
            self._in_memory.append(conform)
        self._rows += rows.num_rows
        self._digest += digest(hashes if self._stager.hashed is None else self._stager.hashed(rows, hashes))

    def finish(self) -> Sequence[Staged]:
        """Make the piece durable and return it; return nothing if there were no rows. Raises StageFailed, Retryable."""
        if self._target is None:
            return []
        with self._translate_errors():
            self._stream.close()
            inline = self._target.finish()
        if inline is None and self._stager.cache is not None:
            self._stager.cache.put(self._name, self._in_memory)
        size_bytes = self._target.size_bytes
        return [
            Staged(
                sink=self._stager.sink,
                account=ONLY_ACCOUNT,
                name=self._name,
                attempt=self._attempt.token,
                totals=Totals(rows=self._rows, size_bytes=size_bytes) + Totals(digest=self._digest),
                ref={**self._stager.note, "sha256": self._target.sha256, "size_bytes": size_bytes, "rows": self._rows},
                inline=inline,
            )
        ]

    def abandon(self) -> None:
        if self._target is not None:
            self._target.abandon()

    def _require_fit(self, rows: "pa.RecordBatch") -> None:
        deletes = self._stager.deletes
        for part in [rows] if deletes is None else deletes.checked(rows):
            self._stager.require_fit(part)

    def _open_stream(self) -> Any:
        if self._stream is None:
            self._target = _Target(self._stager, self._name)
            header = {"sink": self._stager.sink, "attempt": self._attempt.token}
            self._target.write(encode_document(FORMAT, VERSION, header) + b"\n")
            options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
            self._stream = pa.ipc.new_stream(pa.PythonFile(self._target, mode="w"), self._schema, options=options)
        return self._stream

    def _conform(self, rows: "pa.RecordBatch") -> "pa.RecordBatch":
        if rows.schema.equals(self._schema, check_metadata=True):
            return rows
        if rows.schema.names != self._schema.names or rows.schema.types != self._schema.types:
            raise StageFailed(
                f"Sink {self._stager.sink!r} expected rows of ({_types(self._schema)}), found ({_types(rows.schema)}).",
                remedy="Give every partition of the transform's result the same columns and types.",
            )
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        what = (
            f"The spool piece {self._name} of sink {self._stager.sink!r} cannot be written to {self._stager.claimed.place.where}"
        )
        then = " and start again: nothing of the batch was decided."
        with translate_os_errors(StageFailed, what, then=then), staging():
            yield


class _Target:
    """A file object that stays in memory up to the inline limit, and becomes a file of the place beyond it."""

    closed = False

    def __init__(self, stager: SpoolStager, name: str) -> None:
        self._claimed = stager.claimed
        self._limit_bytes = stager.inline_limit_bytes
        self._name = name
        self._memory = bytearray()
        self._file: PieceFile | None = None
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Append bytes; called by pyarrow."""
        self._hash.update(data)
        self.size_bytes += len(data)
        if self._file is not None:
            self._write_file(self._file, data)
            return len(data)
        self._memory += data
        if len(self._memory) > self._limit_bytes:
            self._spill()
        return len(data)

    def flush(self) -> None:
        """Do nothing: pyarrow calls it, but `finish` flushes."""

    def finish(self) -> bytes | None:
        """Make the file durable and return None, or return the bytes if there is no file."""
        if self._file is None:
            return bytes(self._memory)
        with SYNC.around(error=OSError, lost=OSError):
            self._file.finish()
        return None

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()

    def _spill(self) -> None:
        self._claimed.require_shared()
        self._file = self._claimed.place.create(self._name)
        data, self._memory = bytes(self._memory), bytearray()
        self._write_file(self._file, data)

    def _write_file(self, file: PieceFile, data: bytes) -> None:
        with WRITE.around(error=OSError, lost=OSError):
            WRITE.write(file, data)


def _types(schema: "pa.Schema") -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
