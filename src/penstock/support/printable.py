"""Text of names, data and errors as a terminal may be given it: what would move its cursor, hide or turn letters is escaped."""

import re
import unicodedata

_MAYBE = re.compile(r"[^ -~]")
_ESCAPED_KINDS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters (C0, C1, DEL), formats (bidirectional ones, zero width), halves of a pair, separators of lines."""


def printable(text: str, *, keep: str = "\n") -> str:
    r"""`text` with each control character written out, as `\x1b`; those in `keep` stay. Printable text stays as it is."""
    return _MAYBE.sub(lambda found: _written_out(found[0], keep), text)


def printable_json(text: str) -> str:
    r"""JSON that means the same as `text`, with control characters as `\u001b`."""
    return _MAYBE.sub(lambda found: _json_escape(found[0]), text)


def _written_out(letter: str, keep: str) -> str:
    if letter in keep or unicodedata.category(letter) not in _ESCAPED_KINDS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def _json_escape(letter: str) -> str:
    """They stand only inside of strings: JSON on one line has none elsewhere."""
    if unicodedata.category(letter) not in _ESCAPED_KINDS:
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))
