"""No name, value or error reaches a terminal as anything but letters, whatever prints it."""

import json
import logging
from collections.abc import Iterator

import pytest
from rich.text import Text

from penstock.cli import app
from penstock.cli.output import show, show_error
from penstock.cli.run import JsonLines, Terminal
from penstock.cli.table import facts, table
from penstock.core.model import SinkName
from penstock.errors import Failed
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.support.printable import printable, printable_json

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x7f\u202eabc\u2066\u200b\u2028\ud800é 😀\u00a0"
ESCAPED = r"\x1b]0;title\x07\x1b[2J\x9b31m\r\x7f\u202eabc\u2066\u200b\u2028\ud800é 😀" + "\u00a0"
HARMFUL = frozenset("\x1b\x07\x9b\r\x7f\u202e\u2066\u200b\u2028\ud800")


def test_what_is_no_letter_is_written_out() -> None:
    assert printable(HOSTILE) == ESCAPED
    assert printable(ESCAPED) == ESCAPED
    assert printable("two\nlines\tand") == "two\nlines\\tand"
    assert printable("two\nlines", keep="") == "two\\nlines"
    assert printable("".join(map(chr, range(32, 127)))) == "".join(map(chr, range(32, 127)))
    every = printable("".join(map(chr, range(0x3000))))
    assert not [letter for letter in every if (letter < " " and letter != "\n") or "\x7f" <= letter < "\xa0"]


def test_json_means_the_same() -> None:
    text = json.dumps({"a": HOSTILE, "b": "\U000e0001"}, ensure_ascii=False)
    assert json.loads(printable_json(text)) == {"a": HOSTILE, "b": "\U000e0001"}
    assert not HARMFUL & set(printable_json(text))


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    yield
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(None)


Captured = pytest.CaptureFixture[str]


def unharmed(capsys: Captured) -> str:
    printed = capsys.readouterr()
    assert not HARMFUL & set(printed.out + printed.err)
    return printed.out + printed.err


@pytest.mark.parametrize(
    "shown",
    [HOSTILE, Text(HOSTILE), table((HOSTILE,), [(HOSTILE,), (Text(HOSTILE),)]), facts([(HOSTILE, HOSTILE)])],
    ids=["text", "styled", "table", "facts"],
)
def test_verbs_show_it_as_text(capsys: Captured, shown: object) -> None:
    show({"a": HOSTILE}, as_json=False, text=lambda _: shown)
    assert r"\x1b]0;title" in unharmed(capsys)


def test_programs_get_it_escaped(capsys: Captured) -> None:
    show({"a": HOSTILE}, as_json=True, text=str)
    assert json.loads(unharmed(capsys)) == {"a": HOSTILE}


@pytest.mark.parametrize("as_json", [False, True])
def test_errors(capsys: Captured, *, as_json: bool) -> None:
    show_error(Failed(f"Found {HOSTILE}.", remedy=f"Mend {HOSTILE}."), as_json=as_json)
    assert "Found" in unharmed(capsys)


def test_progress_of_a_run(capsys: Captured) -> None:
    sinks = {SinkName(HOSTILE): SinkProgress(rows=1)}
    counted = {"rows_out": 1, "stage_ms": 1, "decide_ms": 1, "publish_ms": 1, "path": "pass"}
    progress = BatchProgress(batch_id=1, already=False, recovered=False, sinks=sinks, warnings=(HOSTILE,), **counted)
    with Terminal(HOSTILE) as terminal:
        terminal.batch(progress)
    JsonLines().batch(progress)
    printed = capsys.readouterr()
    assert r"warning: \x1b]0;title" in printed.out
    assert "\x07" not in printed.out
    assert "\x9b" not in printed.out


def test_the_traceback_of_debug_and_warnings(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        logging.getLogger("penstock.somewhere").warning("beware of %s", HOSTILE)
        raise ValueError(HOSTILE + " postgresql://me:geheim@host/db")

    monkeypatch.setattr(app, "_command", lambda: fail)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with pytest.raises(SystemExit):
        app.main(["--show-values", "status"])
    shown = unharmed(capsys)
    assert shown.count(r"\x1b]0;title") == 3
    assert "Traceback" in shown
    assert "geheim" not in shown
