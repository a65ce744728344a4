"""Runs the tasks of a sink side by side without a Spark, as often, as late and as wrongly as a test says."""

import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Tasks:
    """Runs each task in a thread, as it arrives in a worker of Spark: pickled. `seen`: the tasks of each job."""

    def __init__(self, run: Callable[[Any], Any] = lambda task: task.run()) -> None:
        self.run = run
        self.seen: list[Sequence[Any]] = []

    def __call__(self, tasks: Sequence[Any]) -> Sequence[Any]:
        arrived = pickle.loads(pickle.dumps(tasks))
        self.seen.append(arrived)
        with ThreadPoolExecutor(len(arrived)) as pool:
            return json.loads(json.dumps(list(pool.map(self.run, arrived))))
