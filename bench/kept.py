"""Keeps the last two runs of each part as JSON in bench/results/, so that the page can show the slower one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.result import Run, from_json, to_json

RESULTS = Path(__file__).parent / "results"
KEPT = 2


def kept_runs(results: Path = RESULTS) -> Mapping[str, Sequence[Run]]:
    """Of every part that was measured; the newest run of each is the last."""
    return {path.stem: from_json(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}


def keep(part: str, run: Run, results: Path = RESULTS) -> None:
    """Add a run of `part`; the oldest goes."""
    runs = [*kept_runs(results).get(part, ()), run][-KEPT:]
    results.mkdir(exist_ok=True)
    (results / f"{part}.json").write_text(to_json(runs), encoding="utf-8")
