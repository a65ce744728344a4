"""The search for the end of a dense run of numbered objects, with few lookups.

Exponential, then binary search (Bentley and Yao, 1976): the cost grows with the logarithm of the distance from the start, so an
old hint costs a few more lookups and never a walk over all entries.
"""

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def last_present(look: Callable[[int], _T | None], start: int) -> tuple[int, _T] | None:
    """Return the last number of the dense run that contains `start`, and its object; None if nothing is at `start`.

    A run that grows meanwhile is seen as it was at some moment of the call.
    """
    found = look(start)
    if found is None:
        return None
    low, newest, step = start, found, 1
    while (further := look(low + step)) is not None:
        low, newest, step = low + step, further, step * 2
    absent = low + step
    while absent - low > 1:
        middle = (low + absent) // 2
        found = look(middle)
        if found is None:
            absent = middle
        else:
            low, newest = middle, found
    return low, newest
