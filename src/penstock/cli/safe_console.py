"""A console on which no name, value or error can control the terminal: only its own styles and movements reach it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.support.printable import printable


class SafeConsole(Console):
    """The console of rich, with the control characters of any text escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape every text that rich renders; all of it passes here. Segments with `control` are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
