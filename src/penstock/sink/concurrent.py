"""Runs one operation on many items in threads: disks and stores answer many requests in the time of one."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.support.combined_error import merge

_T = TypeVar("_T")
_R = TypeVar("_R")
_PARALLEL = 16


def map_concurrently(operation: Callable[[_T], _R], items: Sequence[_T], *, parallel: int = _PARALLEL) -> list[_R]:
    """Return the results of `operation` on all items; several items run in threads.

    Waits for all items, then raises as `results_of`.
    """
    if len(items) < 2:
        return list(map(operation, items))
    with ThreadPoolExecutor(min(parallel, len(items)), thread_name_prefix="penstock-sink") as pool:
        futures = [pool.submit(operation, item) for item in items]
    return results_of(futures)


def results_of(futures: Sequence[Future[_R]]) -> list[_R]:
    """Wait for all `futures` and return their results. Raises what they raised: if all are PenstockErrors, one for all of them.

    Otherwise the first exception in the order of `futures` is raised by itself.
    """
    raised = [error for future in futures if (error := future.exception()) is not None]
    found = [error for error in raised if isinstance(error, PenstockError)]
    if found and len(found) == len(raised):
        raise merge(found)
    return [future.result() for future in futures]
