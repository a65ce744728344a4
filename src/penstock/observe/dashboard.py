"""A dashboard of Grafana over Penstock's metrics, as the JSON that Grafana imports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 24, 7
"""Of Grafana's grid, and of every panel in it."""

_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_CHOSEN = '{pipeline=~"$pipeline"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `expressions` has the legend of each expression; `unit` is a name of Grafana's."""

    title: str
    description: str
    expressions: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


PANELS = (
    Panel(
        title="Alerts",
        description="What Prometheus says is wrong.",
        expressions={"{{pipeline}} {{alertname}}": f'ALERTS{{alertname=~"Penstock.*", alertstate="firing", {_CHOSEN[1:]}'},
        kind="table",
        width=12,
    ),
    Panel(
        title="Health",
        description="What the next start would meet: it is refused on conflict.",
        expressions={
            "{{pipeline}} {{state}}": f"penstock_health{_CHOSEN} == 1",
            "{{pipeline}} unreadable": f"penstock_up{_CHOSEN} == 0",
        },
        kind="table",
        width=12,
    ),
    Panel(
        title="Rows decided",
        description="Rows a second, for each account of each sink, and those that rules of the sources dropped.",
        expressions={
            "{{pipeline}} {{sink}} {{account}}": f"rate(penstock_sink_rows_total{_CHOSEN}[$__rate_interval])",
            "{{pipeline}} {{source}} {{rule}} dropped": f"rate(penstock_source_dropped_rows_total{_CHOSEN}[$__rate_interval])",
        },
    ),
    Panel(
        title="Bytes decided",
        description="Bytes a second, for each account of each sink.",
        expressions={"{{pipeline}} {{sink}} {{account}}": f"rate(penstock_sink_bytes_total{_CHOSEN}[$__rate_interval])"},
        unit="Bps",
    ),
    Panel(
        title="Files decided",
        description="Files a second, for each account of each sink.",
        expressions={"{{pipeline}} {{sink}} {{account}}": f"rate(penstock_sink_files_total{_CHOSEN}[$__rate_interval])"},
    ),
    Panel(
        title="Batches",
        description="Batches a second: planned and committed by Spark, and decided in between.",
        expressions={
            "{{pipeline}} planned": f"deriv(penstock_spark_planned_batch_id{_CHOSEN}[$__rate_interval])",
            "{{pipeline}} decided": f"deriv(penstock_decided_batch_id{_CHOSEN}[$__rate_interval])",
            "{{pipeline}} committed": f"deriv(penstock_spark_committed_batch_id{_CHOSEN}[$__rate_interval])",
        },
    ),
    Panel(
        title="Steps of a batch",
        description="How long the newest batch took, each of its steps, and each publication.",
        expressions={
            "{{pipeline}} {{step}} {{sink}}": f"penstock_batch_step_duration_seconds{_CHOSEN}",
            "{{pipeline}} all": f"penstock_batch_duration_seconds{_CHOSEN}",
        },
        unit="s",
    ),
    Panel(
        title="Rows of a batch",
        description="Records that the newest batch read, rows that it brought, and how often Spark ran it again.",
        expressions={
            "{{pipeline}} read": f"penstock_batch_rows_read{_CHOSEN}",
            "{{pipeline}} brought": f"penstock_batch_rows{_CHOSEN}",
            "{{pipeline}} replays": f"penstock_batch_replays{_CHOSEN}",
        },
    ),
    Panel(
        title="Since the newest entry of the ledger",
        description="A driver that decides batches keeps it low.",
        expressions={"{{pipeline}}": f"time() - penstock_ledger_last_entry_timestamp_seconds{_CHOSEN}"},
        unit="s",
    ),
    Panel(
        title="Starts",
        description="Generations opened within an hour.",
        expressions={"{{pipeline}}": f"penstock_generation{_CHOSEN} - min_over_time(penstock_generation{_CHOSEN}[1h])"},
    ),
    Panel(
        title="Records that wait",
        description="Records of topics and journals that are not decided yet.",
        expressions={"{{pipeline}} {{source}} {{input}}": f"penstock_source_lag_records{_CHOSEN}"},
    ),
    Panel(
        title="Age of the oldest record that waits",
        description="How far behind a topic or journal is.",
        expressions={"{{pipeline}} {{source}} {{input}}": f"penstock_source_lag_seconds{_CHOSEN}"},
        unit="s",
    ),
    Panel(
        title="Time until retention removes what waits",
        description="Only of topics from which something is removed by age.",
        expressions={"{{pipeline}} {{source}} {{input}}": f"penstock_source_seconds_to_loss{_CHOSEN}"},
        unit="s",
    ),
    Panel(
        title="Files that wait",
        description="Files of file sources that no batch has planned.",
        expressions={"{{pipeline}} {{source}}": f"penstock_source_waiting_files{_CHOSEN}"},
    ),
    Panel(
        title="Bytes that wait",
        description="The size of these files.",
        expressions={"{{pipeline}} {{source}}": f"penstock_source_waiting_bytes{_CHOSEN}"},
        unit="bytes",
    ),
    Panel(
        title="Age of the oldest file that waits",
        description="By its time of modification.",
        expressions={"{{pipeline}} {{source}}": f"time() - penstock_source_oldest_waiting_timestamp_seconds{_CHOSEN}"},
        unit="s",
    ),
    Panel(
        title="Records lost",
        description="Records that are gone and were never decided, and sources that do not tell what waits.",
        expressions={
            "{{pipeline}} {{source}} {{input}}": f"penstock_source_lost_records{_CHOSEN}",
            "{{pipeline}} sources that do not tell": f"penstock_source_lag_unknown{_CHOSEN}",
        },
    ),
    Panel(
        title="Rows of state",
        description="What each stateful operator keeps from batch to batch.",
        expressions={"{{pipeline}} {{operator}} {{name}}": f"penstock_state_rows{_CHOSEN}"},
    ),
    Panel(
        title="Size of state",
        description="Of all executors together: memory, tables of RocksDB, and their limits.",
        expressions={
            "{{pipeline}} {{operator}} {{name}} memory": f"penstock_state_memory_bytes{_CHOSEN}",
            "{{pipeline}} {{operator}} {{name}} disk": f"penstock_state_disk_bytes{_CHOSEN}",
            "{{pipeline}} limit of {{of}}": f"penstock_state_limit_bytes{_CHOSEN}",
        },
        unit="bytes",
    ),
    Panel(
        title="Time until the state reaches a limit",
        description="By its growth over the last day.",
        expressions={"{{pipeline}} {{of}}": f"penstock_state_seconds_to_limit{_CHOSEN}"},
        unit="s",
    ),
    Panel(
        title="Places that want a hand",
        description="Accounts that hold something else than the ledger says, or do not answer.",
        expressions={
            "{{pipeline}} {{sink}} {{account}} {{state}}": (
                f'penstock_sink_state{{state=~"foreign|ahead|lost|unreachable", {_CHOSEN[1:]} == 1'
            )
        },
        kind="table",
        width=12,
    ),
    Panel(
        title="Behind the ledger",
        description="Entries of the ledger after the one up to which an account shows everything.",
        expressions={
            "{{pipeline}} {{sink}} {{account}}": (
                f"penstock_ledger_position{_CHOSEN}"
                f" - ignoring (sink, account) group_right () penstock_sink_marker_position{_CHOSEN}"
            )
        },
        width=12,
    ),
)


def dashboard_model() -> Mapping[str, object]:
    """Return the dashboard, with one variable for the data source and one for the pipelines."""
    return {
        "title": "Penstock",
        "uid": "penstock",
        "description": "Made by `penstock metrics --dashboard`.",
        "tags": ["penstock"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_data_source(), _pipelines()]},
        "panels": [_panel(number, *placed) for number, placed in enumerate(zip(PANELS, _places(PANELS), strict=True), start=1)],
    }


def dashboard_file() -> str:
    """Return the dashboard as the file that Grafana imports."""
    return json.dumps(dashboard_model(), indent=1) + "\n"


def _data_source() -> Mapping[str, object]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _pipelines() -> Mapping[str, object]:
    query = "label_values(penstock_up, pipeline)"
    return {
        "name": "pipeline",
        "label": "Pipeline",
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "pipelines"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _places(panels: Sequence[Panel]) -> Iterator[Mapping[str, int]]:
    """Yield the place of each panel: from left to right, in rows."""
    left, row = 0, 0
    for panel in panels:
        if left + panel.width > _WIDTH:
            left, row = 0, row + 1
        yield {"x": left, "y": row * _HEIGHT, "w": panel.width, "h": _HEIGHT}
        left += panel.width


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> Mapping[str, object]:
    is_table = panel.kind == "table"
    how = {"instant": True, "format": "table"} if is_table else {"range": True}
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend, **how}
        for at, (legend, expression) in enumerate(panel.expressions.items())
    ]
    return {
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "type": panel.kind,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0} if not is_table else {}, "overrides": []},
        "targets": targets,
    }
