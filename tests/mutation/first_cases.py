"""A plugin of pytest: of each test only its first case runs, which is enough to see that tests of a copy can pass."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    config.hook.pytest_deselected(items=[item for item in items if item not in first.values()])
    items[:] = first.values()
