"""A console that no name, value or error can make do anything: only its own styles and movements reach the terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.support.printable import printable


class SafeConsole(Console):
    """As rich's, with control characters of any text written out."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's: every text passes here, whatever renders it. Segments with `control` are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
