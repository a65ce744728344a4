"""What is taken over of Spark's progress, and the time of each publication."""

import json
from contextlib import suppress

import pytest

from penstock.core.model import BatchId, Generation, SinkName
from penstock.errors import Failed
from penstock.observe.batch_record import BatchRecords, SparkRecord
from penstock.observe.state_samples import StateSamples
from penstock.run.measuring import PublicationTimes, SparkSteps, spark_record

PROGRESS = {
    "batchId": 5,
    "timestamp": "2026-11-29T08:00:00.250Z",
    "durationMs": {
        "addBatch": 400,
        "commitBatch": 12,
        "commitOffsets": 8,
        "getBatch": 3,
        "latestOffset": 9,
        "queryPlanning": 7,
        "triggerExecution": 450,
        "walCommit": 11,
    },
    "eventTime": {"watermark": "2026-11-29T07:59:00.000Z"},
    "stateOperators": [{"numRowsTotal": 10, "memoryUsedBytes": 100}, {"numRowsTotal": 2, "memoryUsedBytes": 30}],
}


class Java:
    """A progress, or a query, as it is seen through py4j."""

    def __init__(self, **values: object) -> None:
        self.values = values

    def __getattr__(self, name: str) -> object:
        return lambda: self.values[name]


def progress(number: int, **changed: object) -> Java:
    found = {**PROGRESS, "batchId": number, "timestamp": f"2026-11-29T08:00:{number:02}.000Z", **changed}
    return Java(timestamp=found["timestamp"], json=json.dumps(found))


class Records(BatchRecords):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = list[object]()

    def write(self, record: object) -> None:
        self.written.append(record)


def test_a_progress_becomes_a_record() -> None:
    assert spark_record(PROGRESS, generation=Generation(3)) == SparkRecord(
        generation=Generation(3),
        batch_id=5,  # type: ignore[arg-type]
        began_ms=1_795_939_200_250,
        fetch_ms=9,
        offset_log_ms=11,
        plan_ms=10,
        execute_ms=400,
        commit_log_ms=20,
        total_ms=450,
        state_rows=12,
        state_bytes=130,
        watermark="2026-11-29T07:59:00.000Z",
    )


def test_each_batch_is_noted_once_and_times_without_one_are_not() -> None:
    query, records = Java(lastProgress=None, recentProgress=[]), Records()
    steps = SparkSteps(Java(), records, StateSamples("none"))  # type: ignore[arg-type]
    steps._java = query
    steps.note(Generation(1), delivered=BatchId(9))
    seen = list[Java]()
    for newest in (progress(1), progress(2), progress(3, durationMs={"triggerExecution": 2}), progress(4)):
        seen.append(newest)
        query.values = {"lastProgress": newest, "recentProgress": seen[-3:]}
        if len(seen) != 2:  # two at once
            steps.note(Generation(1), delivered=BatchId(9))
            steps.note(Generation(1), delivered=BatchId(9))
    assert [record.batch_id for record in records.written if isinstance(record, SparkRecord)] == [1, 2, 4]


def test_spark_is_not_asked_before_there_is_something_new() -> None:
    asked, records = list[str](), Records()
    steps = SparkSteps(Java(), records, StateSamples("none"))  # type: ignore[arg-type]
    steps._java = Asked(asked)
    steps.note(Generation(1), delivered=None)
    assert asked == []
    for delivered in (0, 1, 1):
        steps.note(Generation(1), delivered=BatchId(delivered))
    assert asked == ["lastProgress"] * 2
    assert len(records.written) == 2


class Asked:
    """A query that counts what is asked of it; its newest batch is 1."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def lastProgress(self) -> Java:  # noqa: N802 - Spark's name
        self._asked.append("lastProgress")
        return progress(len(self._asked) - 1)


@pytest.mark.parametrize("text", ["{}", "no JSON", json.dumps({**PROGRESS, "durationMs": {"addBatch": 1}, "timestamp": "late"})])
def test_a_progress_of_another_version_costs_nothing(text: str) -> None:
    odd, records = Java(timestamp="2026", json=text), Records()
    steps = SparkSteps(Java(), records, StateSamples("none"))  # type: ignore[arg-type]
    steps._java = Java(lastProgress=odd, recentProgress=[odd])
    steps.note(Generation(1), delivered=BatchId(9))
    assert records.written == []


def test_each_publication_is_timed_whatever_its_outcome() -> None:
    times = PublicationTimes()
    with times(SinkName("lake")):
        pass
    with suppress(Failed), times(SinkName("audit")):
        raise Failed("Full.", remedy="Make room.")
    assert list(times.sink_ms) == ["lake", "audit"]
    assert all(spent_ms >= 0 for spent_ms in times.sink_ms.values())
