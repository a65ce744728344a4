"""What a page's `console` blocks show: commands after `$ `, and below each what it prints.

`…` stands for any text within a line, and for any lines where it is one by itself. Columns may be wider or narrower than shown.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from subprocess import CompletedProcess
from textwrap import dedent

Done = CompletedProcess[str]
_KILLED = -9


@dataclass(frozen=True)
class Shown:
    """One command of a page; what is shown below it, None where the page does not show it."""

    command: str
    environment: Mapping[str, str]
    words: tuple[str, ...]
    printed: tuple[str, ...] | None

    def assert_printed_by(self, run: "Callable[[Shown], Done]") -> None:
        """Run it: it prints what is shown, or nothing is shown and it ends well. What Spark logs is on the other stream."""
        done = run(self)
        told = f"{self.command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        if self.printed is None:
            assert done.returncode == 0, told
        else:
            said = "Killed" if done.returncode == _KILLED else done.stdout
            assert _pattern(self.printed).fullmatch("".join(f"{line}\n" for line in _lines(said))), told


def shown_in(page: str) -> Iterator[Shown]:
    """The commands of all blocks `console` and `sh` of a page, in their order."""
    for _, language, indented in re.findall(r"^( *)```(console|sh)\n(.*?)^\1```", page, re.MULTILINE | re.DOTALL):
        block = dedent(indented)
        if language == "console":
            for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                yield _shown(command, tuple(_lines(printed)))
        else:
            yield from (_shown(command, None) for command in block.splitlines())


def _shown(command: str, printed: tuple[str, ...] | None) -> Shown:
    words = shlex.split(command, comments=True)
    given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    return Shown(command, given, tuple(words[len(given) :]), printed)


def _lines(text: str) -> list[str]:
    """Its lines with one space between words, without those that are empty or ruled."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line.strip("─ ")]


def _pattern(printed: tuple[str, ...]) -> "re.Pattern[str]":
    lines = [r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n" for line in printed]
    return re.compile("".join(lines))
