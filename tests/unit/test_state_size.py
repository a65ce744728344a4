"""What a driver notes of its query's state, how much of it is kept, and what is told of growth and limits."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.core.model import BatchId, Generation
from penstock.observe import state_samples as module
from penstock.observe.state_samples import FILE, OperatorSample, StateSample, StateSamples, state_samples, thinned
from penstock.observe.state_size import DISK, MEMORY, StateSize, describe_forecast, size_of, state_size
from penstock.run.measuring import state_sample
from penstock.spec.state_limits import StateLimits

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGAN_MS = 1_790_000_000_000


def sample(batch_id: int, *, at_ms: int, rows: int = 1, memory: int = 100, disk: int | None = None) -> StateSample:
    operator = OperatorSample(name="dedupe", rows=rows, memory_bytes=memory, disk_bytes=disk)
    return StateSample(generation=Generation(1), batch_id=BatchId(batch_id), at_ms=BEGAN_MS + at_ms, operators=(operator,))


def noted(home: Path, samples: Sequence[StateSample]) -> None:
    writer = StateSamples(str(home))
    for each in samples:
        writer.write(each)


def test_a_progress_becomes_a_sample() -> None:
    progress = {
        "batchId": 5,
        "timestamp": "2026-11-29T08:00:00.250Z",
        "durationMs": {"triggerExecution": 450, "addBatch": 400},
        "stateOperators": [
            {"operatorName": "dedupe", "numRowsTotal": 10, "memoryUsedBytes": 100, "customMetrics": {"rocksdbSstFileSize": 7}},
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 2,
                "memoryUsedBytes": 30,
                "numRowsUpdated": 4,
                "numRowsRemoved": 5,
                "numRowsDroppedByWatermark": 6,
                "customMetrics": {"loadedMapCacheHitCount": 1},
            },
        ],
    }
    saved = OperatorSample(name="stateStoreSave", rows=2, memory_bytes=30, rows_updated=4, rows_removed=5, rows_late=6)
    assert state_sample(progress, generation=Generation(3)) == StateSample(
        generation=Generation(3),
        batch_id=BatchId(5),
        at_ms=1_795_939_200_700,
        operators=(OperatorSample(name="dedupe", rows=10, memory_bytes=100, disk_bytes=7), saved),
    )
    assert state_sample({**progress, "stateOperators": []}, generation=Generation(3)) is None


def test_samples_come_back_as_they_were_noted(tmp_path: Path) -> None:
    samples = [sample(number, at_ms=1_000 * number) for number in range(3)]
    noted(tmp_path, samples)
    assert state_samples(str(tmp_path)) == samples
    assert state_samples(str(tmp_path), newest=1) == samples[:2]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert state_samples(str(tmp_path / "nowhere")) == ()
    noted(tmp_path / "nowhere", samples)
    noted(Path("s3://bucket/home"), samples)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_lines_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    noted(tmp_path, [sample(1, at_ms=0)])
    whole = (tmp_path / FILE).read_bytes()
    odd = [{**json.loads(whole), "version": 2}, {**json.loads(whole), "operators": [{"name": "x"}]}, None]
    lines = [whole[9:], b"\xff\n", *(json.dumps(each).encode() + b"\n" for each in odd), whole, whole[:30]]
    (tmp_path / FILE).write_bytes(b"".join(lines))
    assert state_samples(str(tmp_path)) == [sample(1, at_ms=0)]


def test_batches_that_were_taken_back_do_not_count(tmp_path: Path) -> None:
    """A rewind to batch 1, a replay of batch 2, and the batches after them."""
    order = (0, 1, 2, 3, 4, 2, 2, 3)
    noted(tmp_path, [sample(batch_id, at_ms=at, rows=at) for at, batch_id in enumerate(order)])
    assert [(each.batch_id, each.operators[0].rows) for each in state_samples(str(tmp_path))] == [(0, 0), (1, 1), (2, 6), (3, 7)]


def test_a_query_with_other_operators_begins_anew(tmp_path: Path) -> None:
    first, second = sample(1, at_ms=0), sample(2, at_ms=1)
    two = replace(second, operators=(*second.operators, *second.operators))
    noted(tmp_path, [first, two])
    assert state_samples(str(tmp_path)) == [two]


def test_what_is_kept_is_bounded_and_spans_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_BYTES", 50_000)
    writer = StateSamples(str(tmp_path))
    minutes = range(0, 60 * 24 * 60, 30)
    for number, minute in enumerate(minutes):
        writer.write(sample(number, at_ms=60_000 * minute))
    assert (tmp_path / FILE).stat().st_size <= 100_300
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    found = state_samples(str(tmp_path))
    assert found[-1].batch_id == len(minutes) - 1
    ages = [found[-1].at_ms - each.at_ms for each in found]
    assert 29 * DAY_MS < ages[0] <= 34 * DAY_MS
    assert max(earlier - later for earlier, later in pairwise(ages)) <= 12 * HOUR_MS
    assert len([age for age in ages if age <= DAY_MS]) == 49


def test_the_newest_sample_is_always_kept() -> None:
    samples = [sample(number, at_ms=number) for number in range(100)]
    assert [each.batch_id for each in thinned(samples)] == [99]
    assert list(thinned([])) == []


def grown(samples: Sequence[StateSample], **limits: int) -> StateSize:
    return size_of(samples, StateLimits(**limits))


def test_growth_is_that_of_the_last_day() -> None:
    fast = [sample(number, at_ms=number * HOUR_MS, rows=1_000_000 * number) for number in range(10)]
    slow = [sample(10 + day, at_ms=(1 + day) * DAY_MS, rows=10_000_000 + 24 * day, memory=100 + 48 * day) for day in range(4)]
    growth = grown([*fast, *slow]).operators[0].growth
    assert growth is not None
    assert (growth.measured_ms, growth.rows_per_day, growth.memory_bytes_per_day) == (DAY_MS, 24, 48)
    assert growth.disk_bytes_per_day is None


def test_one_batch_tells_no_growth() -> None:
    found = grown([sample(0, at_ms=0)], memory=4_000)
    assert found.operators[0].growth is None
    assert (found.forecasts[0].reached_in_ms, found.near) == (None, None)
    assert "its growth is not known yet" in describe_forecast(found.forecasts[0])


def test_limits_are_reached_as_the_state_grows() -> None:
    """1,300 bytes in memory, 100 more each day; tables of 700 bytes, 400 more each day."""
    samples = [sample(0, at_ms=0, memory=1_200, disk=300), sample(1, at_ms=DAY_MS, memory=1_300, disk=700)]
    found = grown(samples, memory=2_200, disk=1_900)
    assert [(each.of, each.reached_in_ms, each.is_near) for each in found.forecasts] == [
        (MEMORY, 9 * DAY_MS, False),
        (DISK, 3 * DAY_MS, False),
    ]
    assert describe_forecast(found.forecasts[0]) == (
        "The state has 1.3 kB, and reaches 2.2 kB in memory in 9 days (measured over 1 day)."
    )
    near = grown(samples, memory=2_200, disk=1_800).near
    assert near is not None
    assert near.of == DISK


@pytest.mark.parametrize(("measured_ms", "near"), [(HOUR_MS - 1, False), (HOUR_MS, True)])
def test_what_a_query_does_in_its_first_hour_is_no_reason_to_warn(measured_ms: int, near: bool) -> None:  # noqa: FBT001
    samples = [sample(0, at_ms=0, memory=1_000), sample(1, at_ms=measured_ms, memory=2_000)]
    assert (grown(samples, memory=10_000).near is not None) is near


def test_beyond_a_limit_nothing_needs_to_be_measured() -> None:
    found = grown([sample(0, at_ms=0, memory=5_000)], memory=5_000)
    assert found.near is not None
    assert found.near.reached_in_ms == 0
    assert describe_forecast(found.near) == "The state is beyond its limit of 5.0 kB in memory: it has 5.0 kB."


def test_a_clock_that_was_set_back_tells_no_growth() -> None:
    found = grown([sample(0, at_ms=DAY_MS), sample(1, at_ms=0)], memory=5_000)
    assert (found.operators[0].growth, found.forecasts[0].measured_ms, found.near) == (None, 0, None)


def test_what_is_far_away_has_no_day() -> None:
    found = grown([sample(0, at_ms=0, memory=3_000), sample(1, at_ms=DAY_MS, memory=3_001)], memory=5_000_000_000)
    assert describe_forecast(found.forecasts[0]).endswith("which it does not reach within ten years (measured over 1 day).")


def test_a_state_that_shrinks_reaches_no_limit() -> None:
    found = grown([sample(0, at_ms=0, memory=3_000), sample(1, at_ms=DAY_MS, memory=2_000)], memory=5_000)
    assert (found.forecasts[0].reached_in_ms, found.near) == (None, None)
    assert "it does not grow" in describe_forecast(found.forecasts[0])


def test_without_notes_nothing_is_told(tmp_path: Path) -> None:
    assert state_size(str(tmp_path), StateLimits()) is None
