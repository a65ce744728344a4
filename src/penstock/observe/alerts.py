"""The alerts over Penstock's metrics, and the rule file of Prometheus that is made of them.

Several alerts can see one fault: an account that is away also ends the run. The alert nearest to the cause fires, and those of
its consequences are quiet meanwhile. Prometheus evaluates the rules of a group in their order, and each writes `ALERTS`; so an
alert names in `unless` only alerts that stand before it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

RUNBOOK = "docs/howto/trouble.md"
"""Where each alert has a section of its name."""

_WAITS = (
    "(sum by (pipeline) (penstock_source_lag_records) > 0 or sum by (pipeline) (penstock_source_waiting_files) > 0"
    " or on (pipeline) (penstock_spark_planned_batch_id unless on (pipeline)"
    " penstock_decided_batch_id >= penstock_spark_planned_batch_id))"
)
"""Pipelines that have something to do: records, files, or a batch that Spark has planned and nobody decided."""

_PLACE = "Sink {{ $labels.sink }}{{ with $labels.account }} {{ . }}{{ end }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `holds`: for how long `expression` must hold; `unless`: alerts nearer to the cause that keep this one quiet.

    `summary` is a template of Prometheus; `description` says what it means and where to look first.
    """

    name: str
    expression: str
    severity: str
    summary: str
    description: str
    holds: str = "0m"
    unless: tuple[str, ...] = ()

    @property
    def rule(self) -> Mapping[str, object]:
        """The alerting rule, as Prometheus names its parts."""
        quiet = f' unless on (pipeline) ALERTS{{alertname=~"{"|".join(self.unless)}"}}' if self.unless else ""
        return {
            "alert": self.name,
            "expr": f"({self.expression}){quiet}" if quiet else self.expression,
            "for": self.holds,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOK}#{self.name.lower()}",
            },
        }


_PLACES = ("PenstockPlaceLost", "PenstockPlaceUnreachable")
_WANTS = ("PenstockAccessRefused", "PenstockPlaceFull")
_CAUSES = ("PenstockUnreadable", *_WANTS, *_PLACES, "PenstockStartRefused", "PenstockRecordsLost", "PenstockSourceUnreadable")
_ENDS = ("PenstockKeepsRestarting", "PenstockRunFailed", "PenstockNotPublished")
_GONE = ("PenstockDriverGone", "PenstockStandsStill")

ALERTS = (
    Alert(
        name="PenstockUnreadable",
        expression="penstock_up == 0",
        holds="5m",
        severity="critical",
        summary="Ledger or checkpoint of {{ $labels.pipeline }} cannot be read.",
        description="A driver cannot read them either: nothing is decided until they answer.",
    ),
    Alert(
        name="PenstockAccessRefused",
        expression="penstock_access_refused == 1",
        severity="critical",
        summary="A login or token of {{ $labels.pipeline }} is refused.",
        description="It has expired, or a right was taken away. Batches wait until it is renewed, and are not lost.",
        unless=("PenstockUnreadable",),
    ),
    Alert(
        name="PenstockPlaceFull",
        expression="penstock_place_full == 1",
        severity="critical",
        summary="A disk, quota or database of {{ $labels.pipeline }} is full.",
        description="The run ended for want of room. Make room and start it again: what was decided is published then.",
        unless=("PenstockUnreadable",),
    ),
    Alert(
        name="PenstockPlaceLost",
        expression='penstock_sink_state{state=~"foreign|ahead|lost"} == 1',
        severity="critical",
        summary=_PLACE + " of {{ $labels.pipeline }} is {{ $labels.state }}.",
        description="What the place holds does not fit the ledger. The next start is refused until the right copy is back.",
    ),
    Alert(
        name="PenstockPlaceUnreachable",
        expression='penstock_sink_state{state="unreachable"} == 1',
        holds="10m",
        severity="critical",
        summary=_PLACE + " of {{ $labels.pipeline }} does not answer.",
        description="Its store or database is away. Batches wait for it, and are not lost.",
        unless=_WANTS,
    ),
    Alert(
        name="PenstockStartRefused",
        expression='penstock_health{state="conflict"} == 1',
        holds="5m",
        severity="critical",
        summary="The next start of {{ $labels.pipeline }} will be refused.",
        description="The checkpoint does not continue what the ledger decided. A person decides which of them is the right one.",
        unless=("PenstockPlaceLost",),
    ),
    Alert(
        name="PenstockRecordsLost",
        expression="penstock_source_lost_records > 0",
        severity="critical",
        summary="{{ $value }} records of {{ $labels.input }} are gone and were never delivered to {{ $labels.pipeline }}.",
        description="Retention or a person removed them. The next start is refused until somebody accepts the gap.",
    ),
    Alert(
        name="PenstockNearLoss",
        expression=(
            "penstock_source_seconds_to_loss < 86400 and penstock_source_seconds_to_loss * 3 < penstock_source_lag_seconds"
        ),
        severity="critical",
        summary="Retention removes unread records of {{ $labels.input }} in {{ $value | humanizeDuration }}.",
        description="Less than a quarter of the retention time is left. Raise the retention first, then look why they wait.",
    ),
    Alert(
        name="PenstockSourceUnreadable",
        expression="penstock_source_lag_unknown > 0",
        holds="10m",
        severity="critical",
        summary="A source of {{ $labels.pipeline }} does not tell what waits.",
        description="Brokers do not answer or take the login, or a journal or another pipeline's ledger cannot be read.",
    ),
    Alert(
        name="PenstockKeepsRestarting",
        expression=(
            f"penstock_generation - min_over_time(penstock_generation[30m]) >= 3"
            f" and on (pipeline) {_WAITS} unless on (pipeline) (changes(penstock_decided_batch_id[30m]) > 0)"
        ),
        severity="critical",
        summary="{{ $labels.pipeline }} was started {{ $value }} times in 30 minutes and decided no batch.",
        description="Something ends every run before its first batch, such as a want of memory, or a row that no run gets past.",
        unless=_CAUSES,
    ),
    Alert(
        name="PenstockRunFailed",
        expression='penstock_last_error_timestamp_seconds{exit_code!="75"}',
        severity="critical",
        summary="A run of {{ $labels.pipeline }} ended with {{ $labels.error }}, exit code {{ $labels.exit_code }}.",
        description="A person mends what the error names, such as a full disk or a right that is missing, then starts it again.",
        unless=(*_CAUSES, "PenstockKeepsRestarting"),
    ),
    Alert(
        name="PenstockNotPublished",
        expression="penstock_newest_batch_published == 0",
        holds="10m",
        severity="critical",
        summary="The newest batch of {{ $labels.pipeline }} is decided and not in every sink.",
        description="A running driver publishes it, or the next start, or `penstock recover`: for ten minutes none did.",
        unless=(*_CAUSES, *_ENDS[:2]),
    ),
    Alert(
        name="PenstockDriverGone",
        expression=f"penstock_driver_running == 0 and on (pipeline) {_WAITS}",
        holds="5m",
        severity="critical",
        summary="Nobody runs {{ $labels.pipeline }}, and input waits.",
        description="The driver ended and was not started again. A run that was killed leaves no error.",
        unless=(*_CAUSES, *_ENDS),
    ),
    Alert(
        name="PenstockStandsStill",
        expression=f"time() - penstock_ledger_last_entry_timestamp_seconds > 300 and on (pipeline) {_WAITS}",
        holds="10m",
        severity="critical",
        summary="{{ $labels.pipeline }} has decided nothing for {{ $value | humanizeDuration }}, and input waits.",
        description="The driver hangs, its batch takes longer than 15 minutes, or it runs elsewhere and is gone.",
        unless=(*_CAUSES, *_ENDS, *_GONE[:1]),
    ),
    Alert(
        name="PenstockFenced",
        expression="time() - penstock_last_fenced_timestamp_seconds < 900",
        severity="warning",
        summary="A run of {{ $labels.pipeline }} was stopped: a newer run has the pipeline.",
        description="Two drivers met, and the older one ended with exit code 4. Nothing is lost; see who started the newer one.",
        unless=(*_CAUSES, *_ENDS),
    ),
    Alert(
        name="PenstockStartsOften",
        expression="penstock_generation - min_over_time(penstock_generation[30m]) >= 10",
        severity="warning",
        summary="{{ $labels.pipeline }} was started {{ $value }} times in 30 minutes.",
        description="Two schedulers run it, and each start fences the other's run (exit code 4), or runs are very short.",
        unless=(*_CAUSES, *_ENDS, "PenstockFenced"),
    ),
    Alert(
        name="PenstockFallsBehind",
        expression=(
            "(penstock_source_lag_seconds > 900 and deriv(penstock_source_lag_records[30m]) > 0"
            " or time() - penstock_source_oldest_waiting_timestamp_seconds > 900"
            " and deriv(penstock_source_waiting_files[30m]) > 0)"
            " and on (pipeline) changes(penstock_decided_batch_id[15m]) > 0"
        ),
        holds="15m",
        severity="warning",
        summary="{{ $labels.source }} of {{ $labels.pipeline }} is {{ $value | humanizeDuration }} behind, and more waits.",
        description="Batches are delivered, and more comes than goes: give it cores, or larger batches.",
        unless=(*_CAUSES, *_ENDS, *_GONE),
    ),
    Alert(
        name="PenstockStateGrows",
        expression="penstock_state_seconds_to_limit < 259200",
        holds="15m",
        severity="warning",
        summary=(
            "The state of {{ $labels.pipeline }} reaches its limit "
            '{{ if eq $labels.of "disk" }}on disk{{ else }}in memory{{ end }} in {{ $value | humanizeDuration }}.'
        ),
        description="Its rows are never removed, or more come than the watermark removes: look at `penstock state`.",
    ),
)


def rule_groups() -> Mapping[str, object]:
    """Return what the rule file holds."""
    return {"groups": [{"name": "penstock", "rules": [alert.rule for alert in ALERTS]}]}


def rule_file() -> str:
    """Return the rule file of Prometheus."""
    rules = ("\n        ".join(_lines(alert.rule)) for alert in ALERTS)
    head = "# Made by `penstock metrics --rules`.\ngroups:\n  - name: penstock\n    rules:\n"
    return head + "".join(f"      - {rule}\n" for rule in rules)


def _lines(of: Mapping[str, object]) -> Iterator[str]:
    """Yield the lines of a mapping in YAML. JSON is YAML too, so texts stand there as JSON; an expression as it is."""
    for key, value in of.items():
        if isinstance(value, Mapping):
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(value))
        elif key == "expr":
            yield f"{key}: >-"
            yield f"  {value}"
        else:
            yield f"{key}: {json.dumps(value)}"
