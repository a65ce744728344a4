"""Listeners whose package is not installed are told with the command that installs it."""

import re
import sys
from pathlib import Path

import pytest
from tests.architecture.reading import ROOT

from penstock.errors import DependencyMissing
from penstock.receive.receiver import receive
from penstock.spec.receive import Receive
from penstock.support.extras import install_command

LISTENERS = {
    "http": ({"listen": "127.0.0.1:0"}, "aiohttp", "receive"),
    "amqp": ({"broker": "127.0.0.1:1", "queue": "q"}, "pika", "amqp"),
    "read": ({"listen": "127.0.0.1:0"}, "aiohttp", "receive"),
    "metrics": ({"listen": "127.0.0.1:0"}, "prometheus-client", "metrics"),
    "mqtt": ({"broker": "127.0.0.1:1", "topics": ["t"], "client_id": "penstock"}, "paho-mqtt", "mqtt"),
}
MODULES = {"read": "read_endpoint"}


@pytest.mark.parametrize("name", LISTENERS)
def test_a_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    settings, package, extra = LISTENERS[name]
    monkeypatch.setitem(sys.modules, f"penstock.receive.{MODULES.get(name, name)}", None)
    given = Receive.model_validate({"journal": str(tmp_path / "journal"), "tcp": {"listen": "127.0.0.1:0"}, name: settings})
    with pytest.raises(DependencyMissing, match=rf"receive\.{name} needs the package {package}, which is not installed") as told:
        receive(given, ready=lambda _: None)
    assert told.value.remedy == f"Install it: {install_command(extra)}"
    assert re.search(rf'^{extra} = \[.*"{package}\W', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
