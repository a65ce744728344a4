"""Runs the tasks of a sink as Spark does, pickled and with its transport of errors, one after the other in this process."""

import json
import pickle
from collections.abc import Sequence

import pyarrow as pa

from penstock.core.publish_task import Answer, PublishTask
from penstock.stage.publishing import PublishPass
from penstock.support.error_transport import from_task


def run_in_turn(tasks: Sequence[PublishTask]) -> Sequence[Answer]:
    run = PublishPass(tasks=tuple(pickle.loads(pickle.dumps(tasks))))
    try:
        return [_answer(run, number) for number in range(len(tasks))]
    except RuntimeError as error:
        raise from_task(str(error)) or error from error


def _answer(run: PublishPass, number: int) -> Answer:
    [answered] = run(iter([pa.RecordBatch.from_pydict({"id": [number]})]))
    [answer] = answered.column("answer").to_pylist()
    decoded: Answer = json.loads(answer)
    return decoded
