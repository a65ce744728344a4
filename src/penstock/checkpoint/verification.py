"""Verifies a checkpoint: everything that `inspect` sees, and the content of every file that the next start reads."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from penstock.checkpoint.entries import Anomaly, Severity
from penstock.checkpoint.files import Files, open_files
from penstock.checkpoint.inspection import NextStart, inspect_logs, next_start
from penstock.checkpoint.log_order import contradictions
from penstock.checkpoint.log_reading import Logs, read_logs
from penstock.checkpoint.source_log_check import source_anomalies
from penstock.checkpoint.state_check import state_anomalies
from penstock.core.model import BatchId
from penstock.errors import PenstockError

_CONSEQUENCES: Mapping[Severity, str] = {
    Severity.STOPS: "Spark does not start on it, or fails in its first batch.",
    Severity.LOSES: "Spark can start, and then lose rows, deliver them again or compute others.",
    Severity.HARMLESS: "None: the next start does not read it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of `penstock checkpoint verify`. `file` is relative to the checkpoint."""

    file: str
    severity: Severity
    meaning: str
    consequence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `penstock checkpoint verify` found. `ok`: nothing that changes what Spark does."""

    location: str
    ok: bool
    query_id: str | None
    outlook: NextStart
    batches: int
    state_version: int | None
    findings: tuple[Finding, ...]


def verify_checkpoint(path: str, *, options: Mapping[str, str] | None = None) -> Verification:
    """Verify the checkpoint at `path`; `options` are those of the store. Raises Usage, Retryable, Failed."""
    return verify_files(open_files(path, options=options))


def with_loss(found: Verification, loss: PenstockError, *, place: str) -> Verification:
    """Return `found` with a `loss` at `place` that leaves no trace in the files, and that somebody else knew of."""
    lost = _finding(Anomaly(place=place, severity=Severity.STOPS, message=loss.message, remedy=loss.remedy))
    stopped = next_start(planned=frozenset(), committed=frozenset(), starts=False)
    return replace(found, ok=False, outlook=stopped, findings=(lost, *found.findings))


def verify_files(files: Files, *, but: Set[str] = frozenset()) -> Verification:
    """Verify a checkpoint whose files are already open.

    Reads both logs, and of source logs and state what the next start reads, `but` not those files of the state. Raises
    Retryable, Failed.
    """
    logs = read_logs(files)
    inspection = inspect_logs(files, logs)
    version = next_state_version(logs)
    found = [*inspection.anomalies, *_deep_anomalies(files, logs, version, but)]
    findings = tuple(_finding(anomaly) for anomaly in _once_each_place(found))
    starts = all(finding.severity is not Severity.STOPS for finding in findings)
    return Verification(
        location=files.location,
        ok=all(finding.severity is Severity.HARMLESS for finding in findings),
        query_id=inspection.query_id,
        outlook=next_start(planned=logs.planned, committed=logs.committed, starts=starts),
        batches=len(logs.planned | logs.committed),
        state_version=version if inspection.operators else None,
        findings=findings,
    )


def next_state_version(logs: Logs) -> int:
    """Return the version of the state that the next batch starts from; 0 is the empty state."""
    newest = max(logs.planned, default=BatchId(0))
    return newest + 1 if newest in logs.committed else newest


def _deep_anomalies(files: Files, logs: Logs, version: int, but: Set[str]) -> Iterator[Anomaly]:
    yield from contradictions(logs)
    yield from source_anomalies(files, logs)
    yield from state_anomalies(files, logs, version, but=but)


def _once_each_place(found: list[Anomaly]) -> Iterator[Anomaly]:
    """Yield the most severe anomaly of each place."""
    order = list(Severity)
    first: dict[str, Anomaly] = {}
    for anomaly in sorted(found, key=lambda one: order.index(one.severity)):
        first.setdefault(anomaly.place, anomaly)
    yield from first.values()


def _finding(anomaly: Anomaly) -> Finding:
    return Finding(
        file=anomaly.place,
        severity=anomaly.severity,
        meaning=anomaly.message,
        consequence=_CONSEQUENCES[anomaly.severity],
        remedy=anomaly.remedy,
    )
