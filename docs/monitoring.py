"""Writes the rule file of Prometheus and the dashboard of Grafana below docs/reference from the code. Run by `make docs`."""

from pathlib import Path

from penstock.observe.alerts import rule_file
from penstock.observe.dashboard import dashboard_file

_REFERENCE = Path(__file__).parent / "reference"
FILES = {_REFERENCE / "penstock.rules.yml": rule_file, _REFERENCE / "penstock.dashboard.json": dashboard_file}


def main() -> None:
    """Write both."""
    for path, content in FILES.items():
        path.write_text(content(), encoding="utf-8")


if __name__ == "__main__":
    main()
