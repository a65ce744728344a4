"""The same operation on many things at once: disks and stores answer many questions in the time of one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.support.combined_error import merge

_T = TypeVar("_T")
_R = TypeVar("_R")
_AT_ONCE = 16


def side_by_side(operation: Callable[[_T], _R], items: Sequence[_T], *, at_once: int = _AT_ONCE) -> list[_R]:
    """`operation` on all items, in threads where there are several; waits for all, then raises what they raised, as one error.

    An exception that is no PenstockError is raised alone, the first of them.
    """
    if len(items) < 2:
        return [operation(item) for item in items]
    with ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="penstock-sink") as pool:
        futures = [pool.submit(operation, item) for item in items]
    raised = [error for future in futures if (error := future.exception()) is not None]
    found = [error for error in raised if isinstance(error, PenstockError)]
    if found and len(found) == len(raised):
        raise merge(found)
    return [future.result() for future in futures]
