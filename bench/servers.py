"""Which of the servers can be started here."""

from collections.abc import Mapping

import pytest
from tests.servers.fixtures import server


def those_there(names: Mapping[str, str]) -> list[str]:
    """Those kinds, of which `names` has the names for people, that run now; says which do not."""
    found = []
    for kind, name in names.items():
        try:
            server(kind)
            found.append(kind)
        except pytest.skip.Exception as missing:
            print(f"{name} is not measured: {missing}")
    return found
