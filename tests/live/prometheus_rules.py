"""Series of our own exporter for `promtool test rules`: looks at a pipeline, each of which stands for the minutes after it."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.servers.prometheus import program
from tests.servers.server import NotInstalledError

from penstock.observe.alerts import ALERTS, rule_file
from penstock.observe.look import looks
from penstock.observe.metrics import StatusCollector
from penstock.observe.status_reader import StatusReader

FIRING = 'ALERTS{alertstate="firing"}'
Series = tuple[str, tuple[tuple[str, str], ...]]


def checked(arguments: Sequence[str | Path]) -> None:
    """Run promtool. Without it the test is skipped; in CI that is a failure (tests/conftest.py)."""
    try:
        command = [program("promtool"), *arguments]
    except NotInstalledError as missing:
        pytest.skip(str(missing))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass
class Scrapes:
    """What a scrape each minute would have seen: every look holds until the next one."""

    minutes: list[int] = field(default_factory=list)
    looked_at_s: list[float] = field(default_factory=list)
    found: list[Mapping[Series, float]] = field(default_factory=list)

    def look(self, reader: StatusReader, *, minutes: int) -> None:
        """Look at the pipeline once, by way of the collector that Prometheus scrapes."""
        families = StatusCollector(lambda: looks([reader])).collect()
        samples = [sample for family in families for sample in family.samples]
        self.found.append({(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples})
        self.minutes.append(minutes)
        self.looked_at_s.append(time.time())

    @property
    def length(self) -> int:
        return sum(self.minutes)

    def input_series(self) -> list[dict[str, str]]:
        """As promtool reads them."""
        names = dict.fromkeys(series for found in self.found for series in found)
        return [{"series": _written(series), "values": self._values(series)} for series in names]

    def _values(self, series: Series) -> str:
        parts, there = list[str](), False
        for found, minutes in zip(self.found, self.minutes, strict=True):
            value = found.get(series)
            if value is not None:
                parts.append(f"{self._moved(value) if '_timestamp_' in series[0] else value}+0x{minutes - 1}")
            else:  # Prometheus marks the end of a series that a scrape does not bring any more
                parts += ["stale", f"_x{minutes - 1}"] if there else [f"_x{minutes}"]
            there = value is not None
        return " ".join(parts)

    def _moved(self, at_s: float) -> float:
        """A moment in the time of the test, which begins at 0: as many minutes before the look that saw it first as it was."""
        number = next(number for number, looked_at_s in enumerate(self.looked_at_s) if at_s <= looked_at_s)
        return 60 * (sum(self.minutes[:number]) - round((self.looked_at_s[number] - at_s) / 60))


def _written(series: Series) -> str:
    name, labels = series
    scraped = (*labels, ("instance", "127.0.0.1:9464"), ("job", "penstock"))
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in scraped)}}}"


def fires(directory: Path, scrapes: Scrapes, name: str, summary: str, **labels: str) -> None:
    """Demand that the alert of that name fires at the end, as told, and that no other one fired at any time."""
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    annotations = {**alert.rule["annotations"], "summary": summary}  # type: ignore[dict-item]
    told = {"pipeline": "shop", **labels, "instance": "127.0.0.1:9464", "job": "penstock", "severity": alert.severity}
    told = {label: value for label, value in told.items() if value}  # to Prometheus an empty label is none
    end = f"{scrapes.length - 1}m"
    _try(
        directory,
        scrapes,
        alert_rule_test=[
            {
                "alertname": alert.name,
                "eval_time": end,
                "exp_alerts": [{"exp_labels": told, "exp_annotations": annotations}],
            }
        ],
        promql_expr_test=[
            {
                "expr": f"group by (alertname) (count_over_time({FIRING}[{scrapes.length}m]))",
                "eval_time": end,
                "exp_samples": [{"labels": f'{{alertname="{alert.name}"}}', "value": 1}],
            }
        ],
    )


def none_fires(directory: Path, scrapes: Scrapes) -> None:
    """Demand that no alert fired at any time."""
    expression = f"group by (alertname) (count_over_time({FIRING}[{scrapes.length}m]))"
    _try(directory, scrapes, promql_expr_test=[{"expr": expression, "eval_time": f"{scrapes.length - 1}m", "exp_samples": []}])


def _try(directory: Path, scrapes: Scrapes, **tests: Any) -> None:
    (directory / "rules.yml").write_text(rule_file())
    test = {"interval": "1m", "input_series": scrapes.input_series(), **tests}
    written = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (directory / "test.yml").write_text(json.dumps(written))
    checked(["test", "rules", directory / "test.yml"])
