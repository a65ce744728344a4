"""Entries of Spark's offset log and commit log, and `metadata`: how they are parsed, and what can be wrong with them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.core.model import BatchId, Json

NO_OFFSET = "-"
ENTRY_ID = re.compile(r"0|[1-9]\d{0,17}")
"""File names of log entries. Spark ignores a number that exceeds its integer type."""
OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2, 3)
RESTORE = "Restore the checkpoint from a copy."
MENDED = (
    "Without a copy, `penstock checkpoint repair FILE` mends what can be mended without losing or repeating rows; else "
    "`penstock checkpoint rebuild` makes the checkpoint again from the ledger, or says why it cannot."
)


def entry_ids(names: Iterable[str]) -> list[BatchId]:
    """Return the entry numbers among file names, without checksums, temporary and foreign files."""
    return [BatchId(int(name)) for name in names if ENTRY_ID.fullmatch(name)]


class Unreadable(ValueError):
    """The text is not a valid entry. The message says where parsing failed; the caller adds the file's name.

    `remedy` is None where the caller knows best what helps.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsEntry:
    """The entry `offsets/N`: Spark's plan of batch N, written before the batch runs.

    `offsets` maps each source to its offset; None where Spark logged `-` because the source had no data yet. The key is the
    source's given name, or else its position in the query's plan as text: `"0"`, `"1"`. `batch_at_ms` is the batch's
    `current_timestamp`.
    """

    version: int
    watermark_ms: int | None
    batch_at_ms: int | None
    confs: Mapping[str, str]
    offsets: Mapping[str, str | None]

    @property
    def shuffle_partitions(self) -> int | None:
        """The number of partitions that stateful operators of the query have; None if it was not logged."""
        text = self.confs.get("spark.sql.shuffle.partitions", "")
        return int(text) if text.isdecimal() else None

    @property
    def named(self) -> bool:
        """Whether sources are identified by given names, not by position."""
        return not all(key.isdecimal() for key in self.offsets)

    def by_key(self) -> Mapping[str, str | None]:
        """Return the offsets in the order of the plan if keys are positions, else in the order of the entry."""
        if self.named:
            return self.offsets
        return {key: self.offsets[key] for key in sorted(self.offsets, key=int)}


def parse_offsets(data: bytes) -> OffsetsEntry:
    """Parse the content of `offsets/N`. Raises Unreadable."""
    lines = _lines(data)
    version = _version(lines[0], OFFSET_VERSIONS)
    metadata = _object(lines[1], "line 2") if len(lines) > 1 and lines[1] else {}
    numbered = enumerate(lines[2:], start=3)
    if version > 1:
        offsets = dict(_named(line, number) for number, line in numbered)
    else:
        offsets = {str(number - 3): _offset(line, number) for number, line in numbered}
    if not offsets:
        raise Unreadable("ends before the offset of the first source")
    return OffsetsEntry(
        version=version,
        watermark_ms=_integer(metadata.get("batchWatermarkMs")),
        batch_at_ms=_integer(metadata.get("batchTimestampMs")),
        confs={key: text for key, text in _mapping(metadata.get("conf")).items() if isinstance(text, str)},
        offsets=offsets,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """The entry `commits/N`, which says that batch N's sink returned.

    `next_watermark_ms` is the watermark of the batch that follows. `state_ids` maps each operator, as text, to the unique ids of
    version N + 1 of its state, by partition and then store; empty unless Spark keeps state checkpoints of version 2.
    """

    version: int
    next_watermark_ms: int | None
    state_ids: Mapping[str, Json]


def parse_commit(data: bytes) -> CommitEntry:
    """Parse the content of `commits/N`. Raises Unreadable."""
    lines = _lines(data)
    version = _version(lines[0], COMMIT_VERSIONS)
    fields = _object(lines[1], "line 2") if len(lines) > 1 else {}
    return CommitEntry(
        version=version,
        next_watermark_ms=_integer(fields.get("nextBatchWatermarkMs")),
        state_ids=_mapping(fields.get("stateUniqueIds")),
    )


def parse_query_id(data: bytes) -> str:
    """Return the query id in the content of `metadata`. Raises Unreadable."""
    act = unfinished_act(data)
    if act is not None:
        raise Unreadable(f"names the act {act}, which is not finished", remedy=finish_remedy(act.rpartition("-")[2]))
    query_id = _object(_decoded(data)).get("id")
    if not isinstance(query_id, str) or not query_id:
        raise Unreadable('has no "id"')
    return query_id


REWOUND = "rewound"
PART_OF: Mapping[str, str] = {REWOUND: "penstock rewind", "restore": "penstock savepoint restore"}
"""Verbs of acts that are a part of more, each with its command: by itself none of them is undone."""


SAME_COMMAND = "Run the same"


def finish_remedy(verb: str) -> str:
    """Return what to do about an act on a checkpoint that was interrupted."""
    whole = PART_OF.get(verb)
    if whole is not None:
        return f"{SAME_COMMAND} `{whole}` command again with --yes to finish it."
    return f"{SAME_COMMAND} `penstock checkpoint {verb}` command again with --yes to finish it, or with --undo --yes to undo it."


_UNFINISHED = re.compile(rb"The act (penstock-acts/\d{4,}-[a-z]+) on this checkpoint is not finished\.[^\0]*")


def unfinished_text(act: str) -> bytes:
    """Return what `metadata` holds while the act in the folder `act` changes the checkpoint. No Spark starts on it."""
    return f"The act {act} on this checkpoint is not finished. Run the same `penstock` command again.\n".encode()


def unfinished_act(metadata: bytes) -> str | None:
    """Return the folder of the act that `metadata` says to be unfinished, None if it says something else."""
    found = _UNFINISHED.fullmatch(metadata)
    return None if found is None else found[1].decode()


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8 text") from None


def _lines(data: bytes) -> list[str]:
    text = _decoded(data)
    if not text.strip():
        raise Unreadable("is empty")
    return text.rstrip("\n").split("\n")


def _version(line: str, known: tuple[int, ...]) -> int:
    digits = line.strip().removeprefix("v")
    if not line.startswith("v") or not digits.isdecimal():
        raise Unreadable(f"starts with {line[:20]!r}, expected a version such as v1")
    if int(digits) not in known:
        raise Unreadable(f"has version {line.strip()}, known are {', '.join(f'v{number}' for number in known)}")
    return int(digits)


def _named(line: str, number: int) -> tuple[str, str | None]:
    name, colon, offset = line.partition(":")
    if not colon:
        raise Unreadable(f"line {number} is not name:offset")
    return name, _offset(offset, number)


def _offset(text: str, number: int) -> str | None:
    if text == NO_OFFSET:
        return None
    if not text.strip():
        raise Unreadable(f"line {number} is empty, expected an offset")
    if text.lstrip()[0] in "{[":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            raise Unreadable(f"line {number} is cut off") from None
    return text


def _object(text: str, place: str = "") -> dict[str, Json]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{place} is not JSON (cut off?)".lstrip()) from None
    if not isinstance(value, dict):
        raise Unreadable(f"{place} is not a JSON object".lstrip())
    return value


def _integer(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


class Severity(str, Enum):
    """What an anomaly does to the next start."""

    STOPS = "stops"
    """Spark does not start, or fails when it reads the file."""
    LOSES = "loses"
    """Spark starts, but can skip data or deliver it again."""
    HARMLESS = "harmless"
    """A trace of a past event; no action is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly: the file or directory concerned (relative to the checkpoint), what is wrong, and the remedy."""

    place: str
    severity: Severity
    message: str
    remedy: str


def restore_or_plan_anew(batch_id: int) -> str:
    """Return the remedy for a torn newest `offsets/<batch_id>`: a machine that goes down leaves it torn, with no copy of it."""
    entry = f"offsets/{batch_id} and offsets/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry} if `penstock history` has no batch {batch_id}: Spark plans it anew."


def restore_or_run_again(batch_id: int) -> str:
    """Return the remedy for a torn newest `commits/<batch_id>` whose batch is also the newest planned one."""
    entry = f"commits/{batch_id} and commits/.{batch_id}.crc"
    return f"{RESTORE} Or remove {entry}: batch {batch_id} runs again, which Penstock recognises."
