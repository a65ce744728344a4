"""The parts of a ledger entry about sources: the offsets read from Kafka, the gaps that were accepted, and the files read."""

import os.path
from collections.abc import Mapping, Sequence

from penstock.core.codec.fields import INTEGER, TEXT, DamagedError, Field, Record, choice, integer, items, mapping, record, text
from penstock.core.model import Json
from penstock.core.topics import FilesRead, GapAccepted, GapKind, InputFile, PartitionRead, SourceName, TopicRead


def _number(name: str) -> int:
    if not name.isdecimal():
        raise DamagedError(f"expected the number of a partition, found {name[:40]!r}")
    return int(name)


def _partition(value: object) -> PartitionRead:
    offsets = [integer(each) for each in items(value)]
    if len(offsets) != 4:
        raise DamagedError(f"expected start, end, low and high of a partition, found {len(offsets)} numbers")
    start, end, low, high = offsets
    return PartitionRead(start=start, end=end, low=low, high=high)


def _of_partitions(partitions: Mapping[int, PartitionRead]) -> Json:
    """Return each partition as a short list, because there may be thousands of partitions."""
    return {str(number): [of.start, of.end, of.low, of.high] for number, of in partitions.items()}


def _to_partitions(value: object) -> Mapping[int, PartitionRead]:
    found = mapping(value)
    return {_number(name): _partition(found[name]) for name in sorted(found, key=_number)}


TOPIC = Record(TopicRead, {"source": TEXT, "topic": TEXT, "topic_id": TEXT, "partitions": Field(_of_partitions, _to_partitions)})
GAP = Record(
    GapAccepted,
    {
        "kind": choice(GapKind, "a kind of gap"),
        "source": TEXT,
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INTEGER,
        "first": INTEGER,
        "end": INTEGER,
    },
)


def _of_files(read: FilesRead) -> Json:
    """Return each file as a short list, without the directory that all are below: there may be a thousand files."""
    below = os.path.commonprefix([file.path for file in read.files]).rpartition("/")  # noqa: RUF071 - URLs
    directory = below[0] + below[1]
    names: list[Json] = [[file.path.removeprefix(directory), file.modified_ms] for file in read.files]
    return {"source": read.source, "below": directory, "names": names}


def _to_files(value: object) -> FilesRead:
    found = record(value, frozenset({"source", "below", "names"}))
    directory = text(found["below"])
    files = tuple(_to_file(directory, items(each)) for each in items(found["names"]))
    return FilesRead(source=SourceName(text(found["source"])), files=files)


def _to_file(directory: str, found: Sequence[object]) -> InputFile:
    if len(found) != 2:
        raise DamagedError(f"expected name and time of a file, found {len(found)} values")
    return InputFile(directory + text(found[0]), integer(found[1]))


FILES = Field(_of_files, _to_files)
