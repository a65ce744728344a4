"""What a run draws of a test's many cases, so that nobody waits for CI too long.

All run with PENSTOCK_SOAK_FAULTS=all (`make soak`), and where a file is named; PENSTOCK_SEED replays what was drawn.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable

import pytest

from tests.seed import SEED


def keep_some(
    config: pytest.Config, items: list[pytest.Item], *, one_in: int, of: Callable[[pytest.Item], Hashable | None]
) -> None:
    """Deselect all but one in so many (rounded up) of the items that are `of` one thing; None for one that always runs."""
    if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" or any(".py" in argument for argument in config.args):
        return
    cases: defaultdict[Hashable, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[of(item)].append(item)
    kept = set(cases.pop(None, ()))
    generator = random.Random(SEED)
    for all_of_one in cases.values():
        kept.update(generator.sample(all_of_one, -(-len(all_of_one) // one_in)))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
