"""The dashboard and the rules name metrics that the exporter has, and their files in docs are as the code is now."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import monitoring
from ruamel.yaml import YAML

from penstock.cli.app import main
from penstock.observe.alerts import ALERTS, rule_file, rule_groups
from penstock.observe.batch_metrics import BatchCollector
from penstock.observe.dashboard import PANELS, dashboard_file, dashboard_model
from penstock.observe.metrics import StatusCollector

METRIC = re.compile(r"\bpenstock_\w+")
PAGE = Path(__file__).parents[2] / "docs/howto/trouble.md"


def labels_of_metrics() -> dict[str, set[str]]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: set(family._labelnames)  # type: ignore[attr-defined]
        for collector in (StatusCollector(list), BatchCollector([]))
        for family in collector.collect()
    }


def expressions() -> Iterator[tuple[str, str]]:
    """With what is said about each series."""
    for panel in PANELS:
        for legend, expression in panel.expressions.items():
            yield expression, legend
    for alert in ALERTS:
        yield alert.expression, alert.summary


def test_there_is_no_expression_over_a_metric_that_does_not_exist() -> None:
    exist = labels_of_metrics()
    assert [name for expression, _ in expressions() for name in METRIC.findall(expression) if name not in exist] == []


def test_every_label_that_is_told_is_one_of_the_metrics() -> None:
    exist = labels_of_metrics()
    for expression, told in expressions():
        there = set().union(*(exist[name] for name in METRIC.findall(expression)), {"alertname", "pipeline"})
        assert set(re.findall(r"(?:\$labels\.|\{\{)(\w+)", told)) <= there


def test_every_metric_is_shown_or_alerted_on() -> None:
    used = {name for expression, _ in expressions() for name in METRIC.findall(expression)}
    assert labels_of_metrics().keys() - used == {"penstock_source_uncounted", "penstock_batch_id"}


def test_panels_lie_beside_one_another() -> None:
    panels = json.loads(dashboard_file())["panels"]
    assert [panel["title"] for panel in panels] == [panel.title for panel in PANELS]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_rule_file_says_what_the_alerts_say() -> None:
    assert YAML(typ="safe").load(rule_file()) == rule_groups()


def test_an_alert_is_kept_quiet_only_by_those_before_it() -> None:
    """Prometheus evaluates a group in its order: one that follows would be known an interval late."""
    names = [alert.name for alert in ALERTS]
    assert [alert.name for number, alert in enumerate(ALERTS) if not set(alert.unless) <= set(names[:number])] == []


def test_the_page_for_the_night_has_a_section_for_each_alert() -> None:
    page, names = PAGE.read_text(encoding="utf-8"), [alert.name for alert in ALERTS]
    assert re.findall(r"^### (Penstock\w+)$", page, re.MULTILINE) == names
    assert re.findall(r"^\| \[(Penstock\w+)\]\(#penstock\w+\) \|", page, re.MULTILINE) == names


@pytest.mark.parametrize("path", monitoring.FILES, ids=lambda path: path.name)
def test_the_files_in_docs_are_as_the_code_is_now(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == monitoring.FILES[path](), "run `make docs`"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--rules"], rule_file()),
        (["--dashboard"], dashboard_file()),
        (["--rules", "--json"], rule_groups()),
        (["--dashboard", "--json"], dashboard_model()),
    ],
    ids=" ".join,
)
def test_the_command_prints_them(words: list[str], printed: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["metrics", *words])
    out = capsys.readouterr().out
    assert (ended.value.code, out if isinstance(printed, str) else json.loads(out)) == (0, printed)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing argument 'FILE...'."),
        (["--rules", "--dashboard"], "penstock metrics --rules > penstock.rules.yml"),
        (["f.yaml", "--rules"], "the same for all pipelines"),
    ],
)
def test_what_cannot_be_printed_is_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["metrics", *words])
    assert (ended.value.code, said in capsys.readouterr().err) == (2, True)
