"""Notes the name of every case of a run before some are drawn, so that a mutant can be held against them."""

from collections.abc import Set
from typing import Final

import pytest

COLLECTED: Final = pytest.StashKey[Set[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = {item.nodeid for item in items}
