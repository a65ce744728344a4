"""How a driver that waits for its turn stays warm: by a clock that the test moves, with a Spark that only answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import Retryable
from penstock.run import warming
from penstock.run.warming import Warmth


class Spark:
    """A session of `master`, whose Java process may be gone."""

    def __init__(self, master: str) -> None:
        self.sparkContext, self.is_gone = SimpleNamespace(master=master), False

    @property
    def version(self) -> str:
        if self.is_gone:
            raise ConnectionRefusedError
        return "4.3.0"


class Waiting:
    """A driver that waits; `delivered` are the small batches of each time that it warmed itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, master: str) -> None:
        self.delivered: list[int] = []
        self.now_s = 1_000.0
        for name in ("decode_passes", "facts_of_pipeline", "require_demanded"):
            monkeypatch.setattr(warming, name, lambda *_, **__: None)
        monkeypatch.setattr(warming, "frame_of", lambda *_, **__: (None, None))
        monkeypatch.setattr(warming, "is_of_client", lambda _: False)
        monkeypatch.setattr(warming, "_deliver_on_scratch", lambda _, *, batches: self.delivered.append(batches))
        self.spark = Spark(master)
        plan: Any = SimpleNamespace(modules=None)
        settings: Any = SimpleNamespace(sources={})
        self.warmth = Warmth(settings, plan, self.spark, clock=lambda: self.now_s)  # type: ignore[arg-type]

    def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            self.warmth.keep()


def test_a_driver_delivers_a_small_batch_before_spark_ends_its_python_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, "local[2]")
    waiting.passes(44)
    assert waiting.delivered == [2]
    waiting.passes(1)
    assert waiting.delivered == [2, 1]
    waiting.passes(3_600)
    assert waiting.delivered == [2, *[1] * 81]


def test_on_a_cluster_nothing_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, "spark://master:7077")
    waiting.passes(3_600)
    assert waiting.delivered == []


def test_a_driver_whose_java_process_has_ended_while_it_waits_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, "local[2]")
    waiting.spark.is_gone = True
    with pytest.raises(Retryable, match="ended before the driver's turn came"):
        waiting.warmth.keep()
