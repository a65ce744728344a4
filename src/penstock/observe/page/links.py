"""Where the page leads: to other pages of the server, or to other parts of one file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLinks:
    """Links between the pages that `penstock metrics` serves. `path`: the page that has them; `is_live`: it refreshes itself.

    `shows_titles`: as in `FileLinks`.
    """

    path: str = "/"
    is_live: bool = False
    overview: str = "/"
    shows_titles: bool = True

    @property
    def live(self) -> str:
        """The page itself, read again and again."""
        return f"{self.path}?live=1"

    @property
    def still(self) -> str:
        """The page itself, as it is now."""
        return self.path

    def pipeline(self, name: str) -> str:
        """Return the page of one pipeline."""
        return f"/pipelines/{quote(name, safe='')}"

    def entry(self, name: str, position: int) -> str:
        """Return the page of what one position of the ledger holds."""
        return f"{self.pipeline(name)}/positions/{position}"

    def history(self, name: str, up_to: int | None = None) -> str:
        """Return a page of the history, of entries up to a position."""
        return f"{self.pipeline(name)}/history" + ("" if up_to is None else f"?{urlencode({'up_to': up_to})}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLinks:
    """Links inside one file. `detailed`: for each pipeline the positions that have a section of their own.

    `sections`: whether pipelines have one. `shows_titles`: whether the columns of charts say what they are under the mouse.
    """

    numbers: Mapping[str, int]
    detailed: Mapping[str, Collection[int]] = field(default_factory=dict)
    sections: bool = True
    shows_titles: bool = False

    def anchor(self, name: str, position: int | None = None) -> str:
        """Return the identifier of a pipeline's section, or of one batch there. It holds no text from outside."""
        return f"pipeline-{self.numbers[name]}" + ("" if position is None else f"-position-{position}")

    def pipeline(self, name: str) -> str | None:
        """Return the section of one pipeline, None if it has none."""
        return f"#{self.anchor(name)}" if self.sections else None

    def entry(self, name: str, position: int) -> str | None:
        """Return the section of one batch, None if it has none."""
        return f"#{self.anchor(name, position)}" if position in self.detailed.get(name, ()) else None

    def history(self, _name: str, _up_to: int | None = None) -> None:
        """Return nothing: the file holds the newest entries only."""
