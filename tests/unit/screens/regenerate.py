"""Writes the screens beside this file anew: `TZ=UTC python tests/unit/screens/regenerate.py`. Look at each before you keep it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.unit.screen_values import FOLDER, SCREENS, WIDTHS, shown

for name in SCREENS:
    for width in WIDTHS:
        (FOLDER / f"{name}-{width}.txt").write_text(shown(name, width=width))
