"""What a run asks of Kafka before each batch, by ledger and checkpoint. The checkpoint is written here as Spark writes it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Adopted, BatchId, Decided, Decision, Position, QueryId, SourceName, Summary
from penstock.core.topics import Evidence, GapAccepted, GapKind
from penstock.errors import Fenced, InputLost, Refused, Retryable, SourcesChanged
from penstock.run.continuation import require_sources
from penstock.run.kafka_input import KafkaInput
from penstock.source.kafka.gaps import RetainedOffsets, TopicNow
from penstock.source.kafka.watch import Watch
from penstock.spec.source import Source

S = SourceName("s")
OF_THE_BATCH_ITSELF = [1, 2]
"""The entries that say what batch 2 is."""
Offset = Mapping[str, Mapping[str, int]]


class Brokers:
    """Of which a test says what they have."""

    def __init__(self, **topics: TopicNow) -> None:
        self.have = topics

    def topics(self, names: Sequence[str]) -> Mapping[str, TopicNow]:
        return {name: self.have[name] for name in names if name in self.have}


def topic(*kept: tuple[int, int], topic_id: str = "id") -> TopicNow:
    return TopicNow(topic_id=topic_id, partitions={number: RetainedOffsets(*each) for number, each in enumerate(kept)})


class World:
    """A checkpoint, the brokers of each source, and a run over them. Nothing was delivered by an earlier one."""

    def __init__(self, root: Path, *, on_gap: str, **brokers: Brokers) -> None:
        self.root, self.brokers = root, {SourceName(name): each for name, each in brokers.items()}
        options = {"subscribe": "t,u", "kafka.bootstrap.servers": "host:9092"}
        source = Source(format="kafka", options=options, on_gap=on_gap)
        self.watch = Watch(dict.fromkeys(self.brokers, source), connect=lambda name, _: self.brokers[name])
        (root / "metadata").write_text(json.dumps({"id": "q"}))
        self.checkpoint = SparkCheckpoint(root)
        self.input = KafkaInput(self.watch, ledger=self.ledger(), checkpoint=self.checkpoint, names=lambda _: list(self.brokers))
        self.require_newest = lambda: None

    def plan(self, batch_id: int, *ends: Offset, committed: bool = False) -> None:
        """Spark's entry in its offset log, and that of the end of the batch."""
        said = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
        lines = ["v1", json.dumps(said), *(json.dumps(end) for end in ends)]
        write(self.root / "offsets" / str(batch_id), lines)
        if committed:
            write(self.root / "commits" / str(batch_id), ["v1", '{"nextBatchWatermarkMs":0}'])

    def before(self, batch_id: int) -> Any:
        batch = self.checkpoint.batch(BatchId(batch_id), list(self.brokers))
        return self.input.before(batch, wait=lambda _: pytest.fail("it waits"))

    def deliver(self, batch_id: int) -> None:
        batch = self.checkpoint.batch(BatchId(batch_id), list(self.brokers))
        self.input.after(batch, self.before(batch_id))
        topics = self.input.delivered()
        self.decided = Decision(batch=batch, staged=(), rows_in=0, schema="{}", evidence=Evidence(topics=topics))

    def restarted(self, ledger: Any = None) -> tuple[GapAccepted, ...]:
        """A new run, and what it goes on without. `ledger`: one that has more than the newest decision."""
        self.input = KafkaInput(
            self.watch, ledger=ledger or self.ledger(), checkpoint=self.checkpoint, names=lambda _: list(self.brokers)
        )
        summary = Summary(decided_at=Position(1), next_batch_id=BatchId(self.decided.batch.batch_id + 1))
        return self.input.skip_gaps(ledger.tail().summary if ledger else summary, require_newest=self.require_newest)

    def ledger(self) -> Any:
        """That holds the newest decision."""
        return SimpleNamespace(read=lambda _: SimpleNamespace(body=Decided(decision=self.decided)))

    def ledger_with(self, gaps: tuple[GapAccepted, ...]) -> Any:
        """That holds the newest decision, and behind it that these gaps were accepted."""
        upcoming = BatchId(self.decided.batch.batch_id + 1)
        adopted = Adopted(query_id=QueryId("q"), next_batch_id=upcoming, reason="", operator="penstock", gaps=gaps)
        summary = Summary(query_id=QueryId("q"), next_batch_id=upcoming, decided_at=Position(1), adopted_at=Position(2))
        entries = {1: SimpleNamespace(body=Decided(decision=self.decided)), 2: SimpleNamespace(body=adopted)}
        return SimpleNamespace(read=entries.get, tail=lambda: SimpleNamespace(summary=summary))


def write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("gone_for", [1, 3])
def test_what_was_delivered_is_not_read_again(tmp_path: Path, gone_for: int) -> None:
    """The topic was out of sight when Spark planned, so that the offsets do not know it any more."""
    world = World(tmp_path, on_gap="accept", s=Brokers(t=topic((0, 20)), u=topic((0, 90))))
    world.plan(0, {"t": {"0": 0}, "u": {"0": 0}}, committed=True)
    world.plan(1, {"t": {"0": 20}, "u": {"0": 5}})
    world.deliver(1)
    for batch_id in range(2, 2 + gone_for):
        world.plan(batch_id, {"u": {"0": batch_id * 5}})
        world.deliver(batch_id)
    world.plan(2 + gone_for, {"t": {"0": 20}, "u": {"0": 50}})
    with pytest.raises(Refused, match=r"reads topic 't', partition 0, from offset 0 on, but it is delivered up to offset 19"):
        world.before(2 + gone_for)


def test_a_partition_that_goes_on_or_is_new_is_read(tmp_path: Path) -> None:
    brokers = Brokers(t=topic((0, 20)))
    world = World(tmp_path, on_gap="fail", s=brokers)
    world.plan(0, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}})
    world.deliver(1)
    brokers.have["t"] = topic((0, 30), (0, 4))
    world.plan(2, {"t": {"0": 30, "1": 4}})
    world.deliver(2)


def test_a_topic_that_lost_its_end_is_gone_on_with_below_what_was_delivered(tmp_path: Path) -> None:
    brokers = Brokers(t=topic((0, 20)))
    world = World(tmp_path, on_gap="accept", s=brokers)
    world.plan(0, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}}, committed=True)
    world.deliver(1)
    brokers.have["t"] = topic((0, 8))
    assert [gap.kind for gap in world.restarted()] == [GapKind.TRUNCATED]
    brokers.have["t"] = topic((0, 30))
    world.plan(2, {"t": {"0": 30}})
    [read] = world.before(2).topics
    assert read.partitions[0].start == 8


def truncated(root: Path, *, planned: bool) -> World:
    """A topic that was read up to offset 20, and now ends at 8. Spark may have planned more of it by then."""
    world = World(root, on_gap="accept", s=Brokers(t=topic((0, 25), (0, 9))))
    world.plan(0, {"t": {"0": 3, "1": 0}}, committed=True)
    world.plan(1, {"t": {"0": 20, "1": 9}}, committed=True)
    world.deliver(1)
    if planned:
        world.plan(2, {"t": {"0": 25, "1": 9}})
    world.brokers[S].have["t"] = topic((0, 8), (0, 9))
    return world


@pytest.mark.parametrize("high", [8, 30])
@pytest.mark.parametrize("planned", [False, True])
def test_a_gap_that_the_ledger_did_not_get_is_found_by_the_next_start(tmp_path: Path, *, planned: bool, high: int) -> None:
    """A run was killed between the move of the checkpoint and the entry. Meanwhile the topic may have grown again."""
    world = truncated(tmp_path, planned=planned)
    [gap] = world.restarted()
    assert (gap.kind, gap.partition, gap.first, gap.end) == (GapKind.TRUNCATED, 0, 8, 20)
    world.brokers[S].have["t"] = topic((0, high), (0, 9))
    assert world.restarted() == (gap,)
    assert world.checkpoint.batch(BatchId(1), [S]).offsets[0].end == '{"t":{"0":8,"1":9}}'


def test_a_move_that_was_cut_off_is_ended_by_the_next_start(tmp_path: Path) -> None:
    """Of two entries one was replaced: the batch that is planned would begin where no decision ended."""
    world = truncated(tmp_path, planned=True)
    before = (tmp_path / "offsets" / "2").read_bytes()
    world.restarted()
    (tmp_path / "offsets" / "2").write_bytes(before)
    world.brokers[S].have["t"] = topic((0, 30), (0, 9))
    [gap] = world.restarted()
    assert (gap.kind, gap.first, gap.end) == (GapKind.TRUNCATED, 8, 20)
    [read] = world.checkpoint.batch(BatchId(2), [S]).offsets
    assert read.start == read.end


def test_what_was_delivered_of_a_topic_that_was_created_again_is_not_noted_as_lost(tmp_path: Path) -> None:
    world = truncated(tmp_path, planned=False)
    world.brokers[S].have["t"] = topic((0, 90), topic_id="new")
    noted = {(gap.kind, gap.partition, gap.first, gap.end) for gap in world.restarted()}
    assert noted == {(GapKind.RECREATED, 0, 20, 25), (GapKind.RECREATED, 1, 9, 9)}
    assert {(gap.kind, gap.partition, gap.first, gap.end) for gap in world.restarted()} == noted


def test_a_checkpoint_that_somebody_else_changed_is_no_gap(tmp_path: Path) -> None:
    """Its batch is refused later: no copy of what was decided shows that Penstock moved it. There is one of another move."""
    world = truncated(tmp_path, planned=False)
    world.plan(1, {"t": {"0": 15, "1": 9}}, committed=True)
    (tmp_path / "moved-1").mkdir()
    (tmp_path / "offsets" / "1").rename(tmp_path / "moved-1" / "1")
    world.plan(1, {"t": {"0": 8, "1": 9}}, committed=True)
    assert world.restarted() == ()


def test_a_copy_that_was_cut_off_is_none(tmp_path: Path) -> None:
    world = truncated(tmp_path, planned=False)
    (tmp_path / "moved-1").mkdir()
    (tmp_path / "moved-1" / "1").write_text("v1")
    assert [gap.first for gap in world.restarted()] == [8]


def test_a_run_that_is_fenced_meanwhile_leaves_the_checkpoint_as_it_is(tmp_path: Path) -> None:
    def fenced() -> None:
        raise Fenced("", remedy="")

    world = truncated(tmp_path, planned=False)
    world.require_newest = fenced
    with pytest.raises(Fenced):
        world.restarted()
    assert world.checkpoint.batch(BatchId(1), [S]).offsets[0].end == '{"t": {"0": 20, "1": 9}}'
    assert not list(tmp_path.glob("moved-*"))


def test_a_run_that_slept_before_it_moves_the_checkpoint_leaves_that_of_a_newer_one_alone(tmp_path: Path) -> None:
    """The ledger's answer was the last that it got. Else the next start takes its move for one behind a gap, and reads twice."""
    world = truncated(tmp_path, planned=False)
    world.brokers[S].have["t"] = topic((0, 90), (0, 0), topic_id="new")

    def sleep() -> None:
        """Meanwhile a newer run moves the checkpoint and goes on."""
        world.require_newest = lambda: None
        assert [gap.kind for gap in world.restarted()] == [GapKind.RECREATED] * 2
        world.plan(2, {"t": {"0": 40, "1": 0}}, committed=True)
        world.deliver(2)

    world.require_newest = sleep
    with pytest.raises(Retryable, match="planned and committed batches were 1 and 1, now they are 2 and 2"):
        world.restarted()
    assert world.checkpoint.batch(BatchId(2), [S]).offsets[0].end == '{"t": {"0": 40, "1": 0}}'
    assert world.restarted() == ()


def test_an_entry_that_a_newer_run_has_moved_meanwhile_is_not_moved_again(tmp_path: Path) -> None:
    world = truncated(tmp_path, planned=False)
    world.brokers[S].have["t"] = topic((0, 90), (0, 0), topic_id="new")

    def sleep() -> None:
        """Meanwhile a newer run moves the checkpoint. Some of the new topic has expired by then."""
        world.require_newest = lambda: None
        world.brokers[S].have["t"] = topic((5, 90), (0, 0), topic_id="new")
        assert [gap.kind for gap in world.restarted()] == [GapKind.RECREATED] * 2

    world.require_newest = sleep
    with pytest.raises(Retryable, match="offsets/1 is not the entry that was read"):
        world.restarted()
    assert world.checkpoint.batch(BatchId(1), [S]).offsets[0].end == '{"t":{"0":5,"1":0}}'


def test_a_batch_that_a_newer_run_delivered_meanwhile_is_not_moved(tmp_path: Path) -> None:
    """It saw no gap, as the topic had grown again, and changed no entry that this one had read."""
    world = truncated(tmp_path, planned=True)

    def sleep() -> None:
        world.require_newest = lambda: None
        world.brokers[S].have["t"] = topic((0, 30), (0, 9))
        assert world.restarted() == ()
        world.deliver(2)
        world.plan(2, {"t": {"0": 25, "1": 9}}, committed=True)

    world.require_newest = sleep
    with pytest.raises(Retryable, match="planned and committed batches were 2 and 1, now they are 2 and 2"):
        world.restarted()
    assert world.restarted() == ()


def test_what_an_earlier_run_delivered_is_not_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, on_gap="accept", s=Brokers(t=topic((0, 50))))
    world.plan(0, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}}, committed=True)
    world.deliver(1)
    assert world.restarted() == ()
    world.plan(1, {}, committed=True)
    world.plan(2, {"t": {"0": 50}})
    with pytest.raises(Refused, match="from offset 0 on, but it is delivered up to offset 19"):
        world.before(2)


def of_two_clusters(root: Path) -> tuple[World, Brokers, Brokers]:
    """Topics of one name in both, which were delivered to their ends."""
    first, second = Brokers(t=topic((0, 20))), Brokers(t=topic((0, 20)))
    world = World(root, on_gap="accept", first=first, second=second)
    world.plan(0, {"t": {"0": 3}}, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}}, {"t": {"0": 20}}, committed=True)
    world.deliver(1)
    return world, first, second


def test_a_topic_goes_on_with_the_first_record_of_its_own_cluster(tmp_path: Path) -> None:
    """Another cluster has a topic of that name, which begins elsewhere."""
    world, first, second = of_two_clusters(tmp_path)
    first.have["t"], second.have["t"] = topic((0, 30), topic_id="new"), topic((17, 30))
    [gap] = world.restarted()
    assert (gap.source, gap.kind) == ("first", GapKind.RECREATED)
    batch = world.checkpoint.batch(BatchId(1), list(world.brokers))
    assert [each.end for each in batch.offsets] == ['{"t":{"0":0}}', '{"t": {"0": 20}}']


def behind_a_gap(root: Path) -> tuple[World, Any]:
    """Of two topics one lost its end. That was accepted, and the run that did so has decided nothing since."""
    world = World(root, on_gap="accept", s=Brokers(t=topic((0, 20)), u=topic((0, 90))))
    world.plan(0, {"t": {"0": 3}, "u": {"0": 0}}, committed=True)
    world.plan(1, {"t": {"0": 20}, "u": {"0": 5}}, committed=True)
    world.deliver(1)
    world.brokers[S].have["t"] = topic((0, 8))
    gaps = world.restarted()
    assert [(gap.kind, gap.topic) for gap in gaps] == [(GapKind.TRUNCATED, "t")]
    return world, world.ledger_with(gaps)


def test_other_topics_are_known_by_their_ids_after_a_gap_of_one_was_accepted(tmp_path: Path) -> None:
    """Else the records of the new one below where the old one was left are never delivered, and nobody notices."""
    world, ledger = behind_a_gap(tmp_path)
    assert world.restarted(ledger) == ()
    world.brokers[S].have["u"] = topic((0, 90), topic_id="new")
    assert [(gap.kind, gap.topic, gap.first) for gap in world.restarted(ledger)] == [(GapKind.RECREATED, "u", 5)]


def test_a_second_gap_that_the_ledger_did_not_get_is_found_by_the_next_start(tmp_path: Path) -> None:
    world, ledger = behind_a_gap(tmp_path)
    world.brokers[S].have["u"] = topic((0, 2))
    [gap] = world.restarted(ledger)
    assert (gap.kind, gap.topic, gap.first, gap.end) == (GapKind.TRUNCATED, "u", 2, 5)
    world.brokers[S].have["u"] = topic((0, 90))
    assert world.restarted(ledger) == (gap,)


def test_behind_a_gap_too_a_checkpoint_that_somebody_else_changed_is_no_gap(tmp_path: Path) -> None:
    """The copy of what was decided is that of the move which the ledger has."""
    world, ledger = behind_a_gap(tmp_path)
    world.plan(1, {"t": {"0": 8}, "u": {"0": 2}}, committed=True)
    assert world.restarted(ledger) == ()


def test_after_a_gap_was_accepted_sources_must_still_have_the_order_of_the_decision(tmp_path: Path) -> None:
    """Spark knows them by their place in the plan: each would go on where the other one was left."""
    world, first, _ = of_two_clusters(tmp_path)
    first.have["t"] = topic((0, 8))
    ledger = world.ledger_with(world.restarted())
    require_sources(ledger, world.checkpoint, [SourceName("first"), SourceName("second")], named=False)
    with pytest.raises(SourcesChanged, match="in the order second, first, but"):
        require_sources(ledger, world.checkpoint, [SourceName("second"), SourceName("first")], named=False)


def planned_beyond_the_end(root: Path, on_gap: str) -> World:
    """Batch 2 was planned and not decided, and the broker lost the end of what it reads."""
    brokers = Brokers(t=topic((0, 50), (0, 50)))
    world = World(root, on_gap=on_gap, s=brokers)
    world.plan(0, {"t": {"0": 3, "1": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20, "1": 20}}, committed=True)
    world.deliver(1)
    world.plan(2, {"t": {"0": 30, "1": 30}})
    brokers.have["t"] = topic((0, 25), (0, 50))
    return world


def test_a_planned_batch_whose_end_is_gone_ends_the_run_for_good(tmp_path: Path) -> None:
    world = planned_beyond_the_end(tmp_path, "fail")
    with pytest.raises(InputLost, match="by 5 records: partition 0 offsets 25 to 29; the broker has lost them"):
        world.before(2)
    with pytest.raises(InputLost, match="partition 0 offsets 25 to 29"):
        world.restarted()


def test_what_is_left_of_a_planned_batch_is_delivered_once_the_gap_is_accepted(tmp_path: Path) -> None:
    world = planned_beyond_the_end(tmp_path, "accept")
    with pytest.raises(Retryable, match="Start again"):
        world.before(2)
    [gap] = world.restarted()
    assert (gap.kind, gap.partition, gap.first, gap.end) == (GapKind.TRUNCATED, 0, 25, 30)
    world.deliver(2)
    world.plan(3, {"t": {"0": 25, "1": 50}})
    [read] = world.before(3).topics
    assert {number: (of.start, of.end) for number, of in read.partitions.items()} == {0: (20, 25), 1: (20, 50)}


def test_a_topic_that_only_the_checkpoint_knows_is_known_by_its_id(tmp_path: Path) -> None:
    """The first batch that names it was planned by Penstock's own reader, and not decided."""
    world = World(tmp_path, on_gap="fail", s=Brokers(t=topic((0, 90)), u=topic((0, 90), topic_id="new")))
    world.plan(0, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}}, committed=True)
    world.deliver(1)
    world.plan(2, {"t": {"0": 20}, "u": {"0": 7}, "t id id": {}, "u id old": {}})
    recreated = r"Topic 'u' was deleted and created again \(its id was old, now it is new\)"
    with pytest.raises(InputLost, match=recreated):
        world.before(2)
    with pytest.raises(InputLost, match=recreated):
        world.restarted()
    world.brokers[S].have["u"] = topic((0, 90), topic_id="old")
    world.deliver(2)


def test_what_a_decision_knows_is_not_read_in_the_checkpoint_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read is one more of a store that may be far away, for every batch; the ledger's word goes first anyway."""
    world = World(tmp_path, on_gap="fail", s=Brokers(t=topic((0, 90)), u=topic((0, 90))))
    world.plan(0, {"t": {"0": 3}}, committed=True)
    world.plan(1, {"t": {"0": 20}})
    world.deliver(1)
    looked, offsets = list[int](), world.checkpoint.offsets
    monkeypatch.setattr(world.checkpoint, "offsets", lambda batch_id: looked.append(batch_id) or offsets(batch_id))
    world.plan(2, {"t": {"0": 25}, "t id id": {}})
    world.before(2)
    assert looked == OF_THE_BATCH_ITSELF
    world.plan(2, {"t": {"0": 25}, "u": {"0": 7}, "t id id": {}, "u id id": {}})
    looked.clear()
    world.before(2)
    assert looked[:2] == OF_THE_BATCH_ITSELF
    assert looked[2:] == [2, 2]


def test_nothing_of_a_topic_that_was_created_again_is_passed_over(tmp_path: Path) -> None:
    """Nothing was ever decided: the first batch was planned, committed as it was empty, and the topic replaced."""
    world = World(tmp_path, on_gap="accept", s=Brokers(t=topic((0, 90), topic_id="new")))
    world.plan(0, {"t": {"0": 7}, "t id old": {}, "t from 0:7": {}, "(began)": {}}, committed=True)
    assert [gap.kind for gap in world.input.skip_gaps(Summary(), require_newest=lambda: None)] == [GapKind.RECREATED]
    world.plan(1, {"t": {"0": 90}, "t id new": {}})
    [read] = world.before(1).topics
    assert (read.partitions[0].start, read.partitions[0].end) == (0, 90)


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_a_topic_that_is_not_named_any_more_is_refused_before_spark_forgets_it(tmp_path: Path, on_gap: str) -> None:
    world = World(tmp_path, on_gap=on_gap, s=Brokers(t=topic((0, 20)), v=topic((0, 9))))
    world.plan(0, {"t": {"0": 3}, "v": {"0": 3}}, committed=True)
    with pytest.raises(SourcesChanged, match="Source 's' has read topic 'v', which its options do not name any more"):
        world.input.require(Summary())
