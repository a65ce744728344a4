"""A simulated driver process: the product's coordinator and ledger, run by a fake Spark, in its own greenlet."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import greenlet

from penstock.commit.append import NO_PAUSE
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.core.model import Attempt, Batch, Generation, Nonce, Opened, PipelineName, Staged
from penstock.errors import ContentConflict, Fenced, OutcomeUnknown, PenstockError, Refused, Retryable, StagedDataLost
from penstock.testing.simulator.checkpoint import Query
from penstock.testing.simulator.schedule import KilledError, Kind, SparkStoppedError, ViolationError
from penstock.testing.simulator.sinks import FilesSink, KeyedSink, SteppedSink, TableSink
from penstock.testing.simulator.store import SteppedStore, WatchedLedger
from penstock.testing.simulator.targets import Row

if TYPE_CHECKING:
    from penstock.testing.simulator.simulation import Simulation

PIPELINE = PipelineName("simulated")
T = TypeVar("T")


class Driver:
    """One run from start to end. Only the simulation switches to its greenlet."""

    def __init__(self, number: int, simulation: "Simulation", *, recover_only: bool) -> None:
        self.number = number
        self.killed = False
        self.ended: BaseException | None = None
        self._simulation, self._world = simulation, simulation.world
        self.greenlet = greenlet(partial(self._guarded, self._open if recover_only else self._deliver_all), simulation.hub)
        shape = simulation.schedule.shape
        targets = self._world.targets
        history = self._world.history
        self._sinks: tuple[SteppedSink[Any], ...] = (
            FilesSink(targets.files, history, self),
            TableSink(targets.table, history, self),
            KeyedSink(targets.keyed, history, self),
        )
        self._beside = SimulatedDeferredPublish(chance=shape.behind, random=simulation.random) if shape.behind else None
        self._coordinator = Coordinator(
            pipeline=PIPELINE,
            ledger=WatchedLedger(SteppedStore(self._world.store, history, self), history, pipeline=PIPELINE),
            sinks=self._sinks,
            now_ms=self._world.now_ms,
            retrying=NO_PAUSE,
            deferred=self._beside,
            retained=shape.retained,
            prune_every=1,
        )

    def do(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        if self.killed:
            raise KilledError
        if self._beside is not None:
            self._beside.perhaps()
        fault = self._simulation.step(self, operation, subject)
        if fault is Kind.KILL:
            self.killed = True
            raise KilledError
        if fault is Kind.ERROR:
            raise Retryable(f"{operation} failed before it did anything.", remedy="Try again.")
        result = act()
        if fault is Kind.KILL_AFTER:
            self.killed = True
            raise KilledError
        if fault is not None:
            raise OutcomeUnknown(f"The answer of {operation} was lost.", remedy="Read the store and compare.")
        return result

    # --- the program

    def _guarded(self, program: Callable[[], None]) -> None:
        try:
            program()
        except Fenced as fenced:
            if self._coordinator.generation >= self._world.history.generation:
                raise ViolationError(
                    f"I12: driver {self.number} was told of a newer run, but there is none: {fenced}"
                ) from fenced
            self.ended = fenced
        except (StagedDataLost, ContentConflict) as error:
            raise ViolationError(f"I1: driver {self.number} found decided data lost: {error}") from error
        except ViolationError:
            raise
        except Refused as error:
            if not self._world.checkpoints.refusal_expected:
                raise ViolationError(f"I11: driver {self.number} was refused for no reason: {error}") from error
            self.ended = error
        except (PenstockError, SparkStoppedError, KilledError) as error:
            self.ended = error
        except Exception as error:
            raise ViolationError(f"driver {self.number} crashed: {error!r}") from error

    def _open(self) -> None:
        owner = f"driver {self.number}"
        opened = Opened(owner=owner, checkpoint="simulated", pipeline_digest="0", sinks=tuple(sink.name for sink in self._sinks))
        self._coordinator.open(opened)

    def _deliver_all(self) -> None:
        self._open()
        shape = self._simulation.schedule.shape
        query = Query(
            self._world.checkpoints.logs,
            rows=shape.rows,
            batch_rows=shape.batch_rows,
            random=self._simulation.random,
            stepper=self,
        )
        for batch in query.batches():
            self._coordinator.begin(batch, partial(self._stage, batch), on_delivered=lambda _delivered: None)
        self._coordinator.wait()

    # --- the pass

    def _stage(self, batch: Batch, generation: Generation) -> StagedBatch:
        (offsets,) = batch.offsets
        assert offsets.end is not None
        numbers = range(int(offsets.start or 0), int(offsets.end))
        tasks = self._simulation.schedule.shape.tasks
        pieces: list[Staged] = []
        for partition in range(tasks):
            pieces += self._run_task(batch, generation, partition, numbers[partition::tasks])
        return StagedBatch(pieces=tuple(pieces), rows_in=len(numbers), schema="{}")

    def _run_task(self, batch: Batch, generation: Generation, partition: int, numbers: range) -> list[Staged]:
        """Run a task once or twice, and return the messages of one attempt, as Spark does."""
        if not numbers:
            return []
        random = self._simulation.random
        shape = self._simulation.schedule.shape
        attempts = 2 if shape.task_twice and random.random() < shape.task_twice else 1
        messages = [self._attempt(batch, generation, partition, number, numbers) for number in range(attempts)]
        return random.choice(messages)

    def _attempt(self, batch: Batch, generation: Generation, partition: int, number: int, numbers: range) -> list[Staged]:
        salt = self._simulation.random.getrandbits(63)
        attempt = Attempt(
            generation=generation,
            batch_id=batch.batch_id,
            partition=partition,
            task_attempt=number,
            nonce=Nonce(f"{salt:016x}"),
        )
        rows = tuple(Row(row, salt) for row in numbers)
        inline = self._simulation.schedule.shape.inline
        return [sink.stage(attempt, rows, inline=inline) for sink in self._sinks]


class SimulatedDeferredPublish:
    """The `DeferredPublish` of a coordinator: one task at a time, which begins with probability `chance` before each step."""

    def __init__(self, *, chance: float, random: Random) -> None:
        self._chance, self._random = chance, random
        self._task: Callable[[], None] | None = None
        self._failure: PenstockError | None = None

    def __call__(self, task: Callable[[], None]) -> Callable[[], None]:
        """Schedule `task`, and return a function that runs it if it has not run yet, and raises what it raised."""
        self._task = task
        return self._wait

    def perhaps(self) -> None:
        """Begin the task by chance. The driver calls it before each of its steps, including the task's own."""
        if self._task is not None and self._random.random() < self._chance:
            self._begin()

    def _wait(self) -> None:
        self._begin()
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        task, self._task = self._task, None
        try:
            if task is not None:
                task()
        except PenstockError as failure:  # KilledError and ViolationError must reach the simulation
            self._failure = failure
