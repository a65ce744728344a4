"""Which of the servers can be started here."""

from collections.abc import Mapping

import pytest
from tests.servers.fixtures import server, stop_servers


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


def stop_all() -> None:
    """So that no server of one part takes the cores from the next."""
    stop_servers()
