"""The page, as a file and served: it says what there is, runs no script, and takes no text from outside for markup."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Literal
from urllib.parse import quote

import pytest
from tests.unit.page_world import BATCHES, HOSTILE, NOW_MS, make_world
from tests.unit.rewound_world import RewoundWorld

from penstock.cli.app import main
from penstock.core.model import BatchId, PipelineName, Position, Rewound, SinkName, SourceName
from penstock.errors import PenstockError, Retryable
from penstock.ledger.open import open_ledger
from penstock.observe.batch_life import StepKind
from penstock.observe.condition import State
from penstock.observe.driver import Driver
from penstock.observe.endpoint import server_of
from penstock.observe.last_error import LastError
from penstock.observe.listening import Listening
from penstock.observe.page.report import LARGEST_BYTES, report
from penstock.observe.page.serving import Pages
from penstock.observe.page.watched import RECENT, RecentRows, Watched
from penstock.observe.status import PlaceState, Status, WaitingFiles
from penstock.observe.status_reader import StatusReader
from penstock.protocols import Ledger
from penstock.run.pipeline import Pipeline

TOKEN = "not-for-everyone"
WAITING = WaitingFiles(source=SourceName("s"), files=1, size_bytes=22, oldest_ms=NOW_MS)
DOCS = Path(__file__).parents[2] / "docs/howto/page.md"


class Markup(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements, self.attributes, self._pieces = list[str](), list[tuple[str, str]](), list[str]()
        self.feed(page)
        self.text = " ".join("".join(self._pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._pieces.append("" if tag == "span" else " ")
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self._pieces.append(data)


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world")).parent


@pytest.fixture(name="shop")
def _shop(world: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.chdir(world)
    return Pipeline.from_file("shop.yaml").watched()


@pytest.fixture(name="get")
def _get(shop: Watched) -> Iterator[Callable[..., tuple[int, dict[str, str], str]]]:
    """What asks a server of the page on this machine, as a browser whose user gave the token."""
    with server_of(Listening(host="127.0.0.1", port=0, token=TOKEN), [shop, away()]) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        basic = "Basic " + base64.b64encode(f"anybody:{TOKEN}".encode()).decode()

        def ask(path: str, authorization: str = basic) -> tuple[int, dict[str, str], str]:
            connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            try:
                connection.request("GET", path, headers={"Authorization": authorization})
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read().decode()
            finally:
                connection.close()

        try:
            yield ask
        finally:
            server.shutdown()
            thread.join()


def away() -> Watched:
    """A pipeline whose ledger does not answer."""

    def fail(*_: object) -> Ledger:
        raise Retryable(f"The ledger at {HOSTILE} does not answer.", remedy="Look at it.")

    return Watched(reader=StatusReader(fail, pipeline="away"), open_ledger=fail, home="nowhere", file="away.yaml")  # type: ignore[arg-type]


def require_harmless(page: str) -> Markup:
    """Nothing in a page runs or comes from elsewhere."""
    found = Markup(page)
    assert not {"script", "img", "iframe", "object", "link", "b"} & set(found.elements)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in {"style", "src"}]
    links = [value for name, value in found.attributes if name in {"href", "action"}]
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in links)
    assert "\u202e" not in page
    return found


def test_a_report_says_what_there_is_and_stays_small(shop: Watched) -> None:
    page = report([shop], now_ms=NOW_MS)
    found = require_harmless(page)
    assert len(page.encode()) < LARGEST_BYTES
    for text in ("failed", "batch 129", "1,129 rows in 1.1 s", "exit code 1", "at least once", "Batch 129", "write offset log"):
        assert text in found.text
    assert "penstock run shop.yaml" in found.text
    assert "<script>alert(1)</script>" in found.text
    assert r"\u202egnp" in found.text


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("running", "Published up to batch 128 the driver publishes batch 129 Driver"),
        ("ended", "Published up to batch 128 a sink does not say whether it shows batch 129 Driver"),
    ],
)
def test_what_is_published_is_said_while_the_newest_batch_is_not_known(
    shop: Watched, state: Literal["running", "ended"], said: str
) -> None:
    def status(known: Status | None) -> Status:
        found = replace(shop.reader.status(), unsettled=BatchId(129), lacking=None)
        return replace(found, driver=Driver(state=state, text="process 7 of this machine"))

    page = report([replace(shop, reader=StatusReader(status, pipeline="shop"))], now_ms=NOW_MS)
    assert said in require_harmless(page).text


def test_a_pipeline_that_delivered_nothing_has_not_published_everything(shop: Watched) -> None:
    def status(known: Status | None) -> Status:
        return replace(shop.reader.status(), last_batch_id=None, unsettled=None, tail=None, waiting=(WAITING,))

    text = require_harmless(report([replace(shop, reader=StatusReader(status, pipeline="shop"))], now_ms=NOW_MS)).text
    assert "Published nothing yet Driver" in text
    assert "1 file " in text


def test_a_report_of_many_pipelines_stays_small_too(shop: Watched) -> None:
    views = [replace(shop, reader=StatusReader(lambda known: shop.reader.status(), pipeline=f"shop{n}")) for n in range(12)]
    page = report([*views, away()], now_ms=NOW_MS)
    assert len(page.encode()) < LARGEST_BYTES
    assert "13 failed" in require_harmless(page).text


def test_the_style_sheet_is_the_one_that_the_policy_allows(shop: Watched) -> None:
    page = report([shop], now_ms=NOW_MS)
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    [policy] = [value for name, value in Markup(page).attributes if name == "content" and "default-src" in value]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_the_command_writes_it(shop: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", "shop.yaml", "-o", str(target), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code, told) == (0, {"path": str(target), "pipelines": ["shop"], "bytes": target.stat().st_size})
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("shop.yaml", "-o", "nowhere/r.html"), 1, "The report cannot be written to nowhere/r.html: No such file or directory."),
        (("shop.yaml", "-o", "."), 2, "error: . is a directory, and the report is a file.\nName a file in it: -o report.html"),
        (("shop.yaml", "shop.yaml", "-o", "r.html"), 2, "2 files are of the pipeline 'shop'"),
        (("shop.yaml",), 2, "Missing option '--output' / '-o'"),
    ],
)
def test_bad_input_is_refused(
    shop: Watched, words: Sequence[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", *words])
    assert ended.value.code == code
    assert error in capsys.readouterr().err


def test_the_command_of_the_docs_writes_one(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    [(command, told)] = re.findall(r"^\$ penstock (report .+)\n(.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        main(command.replace("flights", "shop").split())
    found = re.sub(r"\d+\.\d kB", "SIZE", capsys.readouterr().out).strip()
    assert (ended.value.code, found) == (0, re.sub(r"\d+\.\d kB", "SIZE", told.replace("flights", "shop")))


def test_the_docs_name_every_state_step_and_path() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert re.findall(r"^\| [◆▲■●] (\w+) \|", text, re.MULTILINE) == [state.value for state in State]
    table = text.partition("| step |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([\w ]+) \|", table, re.MULTILINE) == [kind.value for kind in StepKind]
    assert f"its {RECENT} newest entries" in text


PATHS = ("/", "/pipelines/shop", "/pipelines/shop/history", "/pipelines/shop/positions/20", "/pipelines/away")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_served_with_a_strict_policy(get: Callable[..., tuple[int, dict[str, str], str]], path: str) -> None:
    code, headers, page = get(path)
    assert code == 200
    require_harmless(page)
    assert len(page.encode()) < LARGEST_BYTES
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Refresh" not in headers
    assert get(f"{path}?live=1")[1].get("Refresh") == "30"


def test_a_page_is_for_those_who_have_the_token(get: Callable[..., tuple[int, dict[str, str], str]]) -> None:
    wrong = "Basic " + base64.b64encode(b"anybody:other").decode()
    for authorization in ("", wrong, "Basic !", f"Digest {TOKEN}"):
        for path in (*PATHS, "/metrics"):
            code, _, text = get(path, authorization)
            assert (code, text) == (401, "Send the token: Authorization: Bearer TOKEN.\n")
    assert get("/pipelines/shop", f"Bearer {TOKEN}")[0] == 200


def test_a_batch_shows_its_steps_offsets_and_pieces(get: Callable[..., tuple[int, dict[str, str], str]]) -> None:
    text = Markup(get("/pipelines/shop/positions/9")[2]).text
    assert "Batch 7" in text
    for part in ("write offset log 40 ms 35 ms", "publish audit 810 ms 290 ms", "publish lake 810 ms 240 ms", "77 rows", "2,000"):
        assert part in text
    assert "Replays 1 recognised" in text
    assert "part-g1-b7-p0-t0-" in text


def test_what_is_not_there_is_said(get: Callable[..., tuple[int, dict[str, str], str]]) -> None:
    for path in ("/pipelines/other", "/pipelines/shop/positions/1", "/pipelines/shop/positions/99999", "/pipelines/shop/x"):
        assert get(path)[0] == 404
    code, _, page = get("/pipelines/away/history")
    assert code == 503
    assert "does not answer" in require_harmless(page).text


def test_the_history_is_read_page_by_page_to_its_end(get: Callable[..., tuple[int, dict[str, str], str]]) -> None:
    path, seen = "/pipelines/shop/history", list[int]()
    while path:
        page = get(path)[2]
        seen += map(int, re.findall(r"/positions/(\d+)", page))
        found = re.search(r'href="([^"]+)" rel="next"', page)
        path = found[1] if found else ""
    assert seen == list(range(BATCHES + 1, 1, -1))


@pytest.mark.parametrize(
    ("wanted", "first", "said"),
    [
        ("7", "batch 7", "Such as"),
        ("batch 100", "batch 100", "Such as"),
        ("999", "batch 129", "The ledger retains no decision of batch 999."),
        ("2026-11-30T00:50:01Z", "batch 110", "Such as"),
        ("1999-01-01", "batch 129", "Every entry that the ledger retains is newer than that."),
        (HOSTILE, "batch 129", "Search for the number of a batch"),
    ],
)
def test_the_history_is_searched(get: Callable[..., tuple[int, dict[str, str], str]], wanted: str, first: str, said: str) -> None:
    code, _, page = get(f"/pipelines/shop/history?wanted={quote(wanted)}")
    found = require_harmless(page)
    assert code == 200
    assert re.search(r"batch \d+", found.text.partition("replays")[2])[0] == first  # type: ignore[index]
    assert said in found.text


def test_only_new_entries_are_read_again(world: Path) -> None:
    ledger = open_ledger(f"sqlite:///{world}/shop/ledger.db", pipeline=PipelineName("shop"))
    asked = list[Position]()
    read = ledger.read
    ledger.read = lambda position: (asked.append(position), read(position))[1]  # type: ignore[method-assign]
    try:
        recent = RecentRows()
        first = recent.read(ledger)
        number = len(asked)
        assert (len(first), recent.read(ledger)) == (RECENT, first)
        assert len(asked) - number <= 2
    finally:
        ledger.close()


def test_an_error_of_one_pipeline_hides_no_other(get: Callable[..., tuple[int, dict[str, str], str]]) -> None:
    text = Markup(get("/")[2]).text
    assert "2 failed" in text
    assert text.index("away") < text.index("shop")


def test_a_page_shows_no_secret(shop: Watched) -> None:
    message = "The place postgresql://ann:geheim@db/x does not answer."
    place = PlaceState(sink=SinkName("lake"), account=None, state="unreachable", trouble=message)
    error = LastError(at_ms=0, owner="", kind="Failed", message=message, remedy=f"Correct it. {message}", exit_code=1)
    status = replace(shop.reader.status(), last_error=error)
    seen = replace(status, places=(place,), lag_unknown=(message,), waiting_unknown=(message,))
    page = report([replace(shop, reader=StatusReader(lambda _: seen, pipeline="shop"))], now_ms=NOW_MS)
    assert "ann:***@db" in page
    assert "geheim" not in page


def test_errors_are_penstocks() -> None:
    with pytest.raises(PenstockError):
        away().newest_lives()


def test_batches_that_a_rewind_took_back_are_shown_as_such(tmp_path: Path) -> None:
    world = RewoundWorld(tmp_path).go_on(0, 1, 2)
    file = tmp_path / "flights.yaml"
    accounts = ", ".join(f"{name}: {world.account(name)}" for name in ("a", "b"))
    sinks = f"{{lake: {{type: parquet, accounts: {{{accounts}}}, route: {{column: place}}, partition_by: [place]}}}}"
    file.write_text(f"pipeline: flights\nhome: {tmp_path / 'home'}\nsinks: {sinks}\n")
    watched = Pipeline.from_file(file).watched()
    assert "taken back" not in report([watched], now_ms=NOW_MS)
    world.rewind(0)
    world.go_on(1)
    page = Markup(report([watched], now_ms=NOW_MS)).text
    assert (page.count("batch 1, taken back"), page.count("batch 2, taken back")) == (1, 1)
    assert page.count("generation 1, taken back") == 2
    assert "batch 0, taken back" not in page
    pages = Pages([watched], now_ms=lambda: NOW_MS)
    assert Markup(pages.page("/pipelines/flights/history", {})).text.count(", taken back") == 2
    rewound = next(entry for entry in world.entries() if isinstance(entry.body, Rewound))
    assert isinstance(rewound.body, Rewound)
    batch_1 = Markup(pages.page(f"/pipelines/flights/positions/{rewound.body.to + 1}", {})).text
    assert f"Taken back by the rewind at position {rewound.position}." in batch_1
