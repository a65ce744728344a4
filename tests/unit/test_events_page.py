"""What the pages about events, OpenTelemetry and OpenLineage show is what there is."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from tests.architecture.reading import ROOT
from tests.unit.receivers import receiving
from tests.unit.test_events import FULL, deliver, observation
from tests.unit.test_written_pages import blocks

from penstock.core.model import Generation
from penstock.observe.export import lineage
from penstock.observe.export.events import _CAPACITY, _KIND
from penstock.observe.export.observation import FLUSH_S
from penstock.observe.export.queue import CAPACITY
from penstock.spec.export import EVENTS, EventTarget
from penstock.spec.load import load
from penstock.spec.pipeline import PipelineSettings

EVENTS_PAGE, TRACING_PAGE = ((ROOT / "docs" / "howto" / name).read_text() for name in ("events.md", "tracing.md"))
VARIABLES = {"PAGER_URL": "https://hooks.example.com/services/T1", "PAGER_SECRET": "0123456789abcdef", "OTLP_KEY": "key"}


def loaded(page: str, number: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSettings:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    file = directory / "shown.yaml"
    file.write_text(blocks(page, "yaml")[number])
    return load(file, [])


def test_the_files_that_are_shown_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = loaded(EVENTS_PAGE, 0, tmp_path, monkeypatch)
    assert {name: target.events for name, target in shown.on_event.items()} == {"pager": ("failed", "stalled"), "mail": EVENTS}
    assert loaded(TRACING_PAGE, 0, tmp_path, monkeypatch).opentelemetry is not None
    assert loaded(TRACING_PAGE, 1, tmp_path, monkeypatch).openlineage is not None


def test_the_events_that_are_listed_are_all() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", EVENTS_PAGE, re.MULTILINE)) == EVENTS
    assert f"{_KIND.replace('_', '-')}.json" in EVENTS_PAGE


def test_the_event_and_its_check_are_as_shown(tmp_path: Path) -> None:
    (tmp_path / "receiver.py").write_text(blocks(EVENTS_PAGE, "python")[0])
    scope = runpy.run_path(str(tmp_path / "receiver.py"))
    with receiving() as receiver:
        secret = VARIABLES["PAGER_SECRET"]
        told = observation(tmp_path, pager=EventTarget(url=receiver.url, signing_secret=secret))
        told.opened(Generation(7), {})
        told.ended(FULL)
        (request,) = receiver.requests
    assert scope["is_ours"](dict(request.headers), request.body, secret.encode())
    assert not scope["is_ours"](dict(request.headers), request.body + b" ", secret.encode())
    (shown,) = map(json.loads, blocks(EVENTS_PAGE, "json"))
    variable = ("owner", "timestamp")
    sent = request.json
    assert {key: value for key, value in sent["data"].items() if key not in variable} == {
        key: value for key, value in shown["data"].items() if key not in variable
    }
    assert (sent["type"], sent["text"], sent.keys()) == (shown["type"], shown["text"], shown.keys())


def test_the_command_writes_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaded(EVENTS_PAGE, 0, tmp_path, monkeypatch).on_event["mail"]
    (tmp_path / "tell.py").write_text(blocks(EVENTS_PAGE, "python")[1])
    target = EventTarget(command=[sys.executable, *given.command[1:]])
    told = observation(tmp_path / "home", directory=tmp_path, mail=target)
    deliver(told, 3, recovered=True)
    told.ended(FULL)
    assert (tmp_path / "told.txt").read_text().splitlines() == [
        "to oncall@example.com: recovered: flights delivers again: batch 3, which an earlier run decided, is published now.",
        "to oncall@example.com: failed: A run of flights ended with PublishFailed, exit code 1.",
    ]


def test_the_limits_are_as_written() -> None:
    assert f"a queue of {_CAPACITY} for each target" in EVENTS_PAGE
    assert f"behind queues of {CAPACITY:,} and {lineage._CAPACITY}" in TRACING_PAGE
    for page in (EVENTS_PAGE, TRACING_PAGE):
        assert f"at most {FLUSH_S:.0f} seconds" in page


def test_the_attributes_that_are_listed_are_all() -> None:
    made = (ROOT / "src/penstock/observe/export/telemetry.py").read_text()
    made += (ROOT / "src/penstock/observe/export/places.py").read_text()
    listed = set(re.findall(r"`((?:penstock|db|server|messaging|http|error)\.[a-z_.]+)`", TRACING_PAGE))
    assert listed == set(re.findall(r'"((?:penstock|db|server|messaging|http|error)\.[a-z_.]+)"', made))
    for name in re.findall(r"^\| `(penstock_\w+?)(?:_total)?(?:\{[^}]*\})?` \|", TRACING_PAGE, re.MULTILINE):
        assert f'"{name}"' in made
