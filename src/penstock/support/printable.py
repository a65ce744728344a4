"""Text made safe for a terminal: characters that move the cursor, hide text or reorder it are escaped."""

import re
import unicodedata

_MAYBE = re.compile(r"[^ -~]")
_ESCAPED_KINDS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters (C0, C1, DEL), formats (bidirectional, zero width), lone surrogates, line and paragraph separators."""


def printable(text: str, *, keep: str = "\n") -> str:
    r"""Return `text` with control characters written out, as `\x1b`, except those in `keep`; other text is unchanged."""
    return _MAYBE.sub(lambda found: _written_out(found[0], keep), text)


def printable_json(text: str) -> str:
    r"""Return JSON that means the same as `text`, with control characters as `\u001b`."""
    return _MAYBE.sub(lambda found: _json_escape(found[0]), text)


def _written_out(letter: str, keep: str) -> str:
    if letter in keep or unicodedata.category(letter) not in _ESCAPED_KINDS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def _json_escape(letter: str) -> str:
    """Escape one character. In JSON on one line, control characters occur only inside strings."""
    if unicodedata.category(letter) not in _ESCAPED_KINDS:
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))
