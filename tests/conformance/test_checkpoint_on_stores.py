"""A checkpoint says the same in a store as in a directory: Spark's own, copied there byte by byte by the store's own client."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.servers.fixtures import accounts_on, server, unique
from tests.servers.server import Outside, Place
from tests.servers.store_commands import carry_out

from penstock.blob.client import requests_to
from penstock.checkpoint.act import ACTS
from penstock.checkpoint.acting import carry_out as carry_out_act
from penstock.checkpoint.acting import undo
from penstock.checkpoint.copying import copy_checkpoint
from penstock.checkpoint.difference import compare
from penstock.checkpoint.entries import Severity, entry_ids
from penstock.checkpoint.explanation import explain
from penstock.checkpoint.files import Files, open_files
from penstock.checkpoint.input_listing import InputListing, require_unchanged
from penstock.checkpoint.inspection import inspect_checkpoint, inspect_files
from penstock.checkpoint.rewind_plan import plan_rewind
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.state_layout import state_layout
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId, SourceName
from penstock.core.topics import InputFile
from penstock.errors import Failed, InputChanged, PenstockError, Refused

GOLDEN = Path(__file__).parents[1] / "unit" / "checkpoints"
SOURCES = {
    "aggregation": ["a"],
    "files": ["a"],
    "itself": ["a", "a"],
    "join": ["left", "right"],
    "named": ["incoming", "archive"],
    "rate": ["r"],
    "rocksdb": ["a"],
    "union": ["right", "left"],
}
KINDS = ("az", "gs", "hdfs", "s3")
SCHEMES = {"az": ("az", "abfss"), "gs": ("gs",), "hdfs": ("hdfs",), "s3": ("s3", "s3a")}


@pytest.fixture(name="account", params=KINDS)
def _account(request: pytest.FixtureRequest) -> tuple[Place, Outside]:
    name = unique("ckpt")
    return accounts_on(**{name: request.param})[name]


def copied(checkpoint: Path, store: Outside) -> None:
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: store.put(path.relative_to(checkpoint).as_posix(), path.read_bytes()), files))


def said(files: Files) -> tuple[object, ...]:
    """All that `penstock checkpoint` and `penstock state` show of it, but for where it is."""
    found = replace(inspect_files(files), location="")
    return found, explain(found), state_layout(files)


def answered(checkpoint: SparkCheckpoint, case: str) -> list[object]:
    """All that a run asks of it; a refusal is an answer, too."""
    names = tuple(SourceName(name) for name in SOURCES[case])
    answers: list[object] = [
        checkpoint.exists(),
        checkpoint.query_id(),
        checkpoint.latest_offsets_id(),
        checkpoint.latest_commit_id(),
        checkpoint.has_state(),
    ]
    for batch_id in sorted(entry_ids(checkpoint.files.names("offsets"))):
        for ask in (checkpoint.batch, checkpoint.input_files):
            try:
                answers.append(ask(batch_id, names))
            except PenstockError as refused:
                answers.append((type(refused), refused.message.replace(checkpoint.location, "HERE")))
    return answers


@pytest.mark.parametrize("case", SOURCES)
def test_every_reader_answers_alike(account: tuple[Place, Outside], case: str) -> None:
    place, store = account
    local = GOLDEN / case / "checkpoint"
    copied(local, store)
    assert said(open_files(place.url, options=place.options)) == said(open_files(local))
    there = SparkCheckpoint(place.url, options=place.options)
    assert answered(there, case) == answered(SparkCheckpoint(local), case)


@pytest.mark.parametrize("damage", ["newest commit", "metadata", "newest offsets", "torn offsets", "state", "sources"])
def test_damage_is_seen_alike(tmp_path: Path, account: tuple[Place, Outside], damage: str) -> None:
    place, store = account
    whole = GOLDEN / "aggregation" / "checkpoint"
    local = Path(shutil.copytree(whole, tmp_path / "c"))
    copied(whole, store)
    newest = max(entry_ids(open_files(whole).names("offsets")))
    harmed = {
        "newest commit": f"commits/{newest}",
        "metadata": "metadata",
        "newest offsets": f"offsets/{newest}",
        "torn offsets": f"offsets/{newest}",
        "state": "state/",
        "sources": "sources/",
    }[damage]
    for key in list(store.listing()):
        if key == harmed or (harmed.endswith("/") and key.startswith(harmed)):
            store.delete(key)
            (local / key).unlink()
            if damage == "torn offsets":
                store.put(key, b"v1\n{")
                (local / key).write_bytes(b"v1\n{")
    if harmed.endswith("/") and not place.url.startswith("hdfs:"):  # where a directory is no more than its files
        shutil.rmtree(local / harmed)
    there = said(open_files(place.url, options=place.options))
    assert there == said(open_files(local))
    assert there != said(open_files(whole))
    assert answered(SparkCheckpoint(place.url, options=place.options), "aggregation") == answered(
        SparkCheckpoint(local), "aggregation"
    )


def test_a_copy_between_a_store_and_a_directory_is_verified(tmp_path: Path, account: tuple[Place, Outside]) -> None:
    place, _ = account
    for case in ("files", "rocksdb"):
        here, there = open_files(GOLDEN / case / "checkpoint"), open_files(f"{place.url}/{case}", options=place.options)
        copy_checkpoint(here, there)
        assert [finding for finding in verify_files(there).findings if finding.severity is not Severity.HARMLESS] == []
        with pytest.raises(Refused, match="holds something already"):
            copy_checkpoint(here, there)
        back = open_files(tmp_path / case)
        copy_checkpoint(there, back)
        assert compare(there, back).same
        assert not [one for one in compare(here, back).entries if not one.place.startswith("state/")]


def test_an_act_in_a_store_is_done_and_taken_back(account: tuple[Place, Outside]) -> None:
    place, store = account
    copied(GOLDEN / "aggregation" / "checkpoint", store)
    before = {name: store.get(name) for name in store.listing()}
    files = open_files(place.url, options=place.options)
    newest = max(entry_ids(files.names("commits")))
    act = plan_rewind(files, to_batch=BatchId(newest - 1))
    backup = carry_out_act(files, act)
    found = verify_files(files)
    assert (found.ok, found.outlook.batch_id) == (True, newest)
    assert {name for name in before if name not in store.listing()} == {step.place for step in act.steps}
    undo(files, verb="rewind", yes=True)
    assert {name: store.get(name) for name in store.listing() if not name.startswith(f"{ACTS}/")} == before
    assert any(name.startswith(f"{backup}/before/") for name in store.listing())


def test_where_nothing_is_there_is_no_checkpoint(tmp_path: Path, account: tuple[Place, Outside]) -> None:
    place, _ = account
    there = SparkCheckpoint(place.url, options=place.options)
    assert not there.exists()
    assert said(there.files) == said(open_files(tmp_path / "none"))


def test_files_are_read_in_parts(tmp_path: Path, account: tuple[Place, Outside]) -> None:
    place, store = account
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources/0/9.compact").write_bytes(bytes(range(200)))
    (tmp_path / "sources/0/8").write_bytes(b"")
    copied(tmp_path, store)
    both = [open_files(place.url, options=place.options), open_files(tmp_path)]
    for name in ("sources/0/9.compact", "sources/0/8", "sources/0/7", "sources/0", "sources"):
        for start, size_bytes in ((0, None), (0, 10), (190, 5), (190, 50), (190, None), (200, 5), (300, None)):
            one, other = (files.read(name, start=start, size_bytes=size_bytes) for files in both)
            assert one == other, (name, start, size_bytes)
    there, here = both
    assert sorted(there.names("sources/0")) == sorted(here.names("sources/0")) == ["8", "9.compact"]
    assert there.sizes("sources") == here.sizes("sources") == {"0": None}
    assert there.sizes("") == here.sizes("") == {"sources": None}
    assert there.sizes("sources/0/8") == here.sizes("sources/0/8") == {}
    assert there.size_bytes("sources/0/9.compact") == 200
    assert there.size_bytes("sources/0") is None


def test_a_large_state_costs_a_listing_a_partition_and_not_a_look_at_every_file(account: tuple[Place, Outside]) -> None:
    place, store = account
    names = [f"state/0/{partition}/{version}.delta" for partition in range(6) for version in range(1, 21)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b"x"), names))
    files = open_files(place.url, options=place.options)
    before = requests_to(files.location)
    (operator,) = inspect_files(files).operators
    assert (operator.stores[0].partitions, operator.stores[0].complete_version, operator.stores[0].size_bytes) == (6, 20, 120)
    assert requests_to(files.location) - before < 30


@pytest.mark.parametrize(("kind", "scheme"), [(kind, scheme) for kind in KINDS for scheme in SCHEMES[kind]])
def test_every_scheme_that_spark_knows_is_read(kind: str, scheme: str) -> None:
    place = server(kind).place(unique("scheme"))
    copied(GOLDEN / "files" / "checkpoint", server(kind).outside(place))
    url = scheme + place.url.removeprefix(kind)
    if scheme == "abfss":
        bucket, _, rest = url.partition("/table")
        url = f"{bucket}.dfs.core.windows.net/table{rest}"
    found = inspect_checkpoint(url, options=place.options)
    assert (found.query_id, found.ok) == (inspect_checkpoint(str(GOLDEN / "files/checkpoint")).query_id, True)


@pytest.mark.parametrize(
    ("kind", "wrong"), [("az", {"account_key": "d3Jvbmctc2VjcmV0LXdyb25n"}), ("s3", {"secret_access_key": "wrong-secret-wrong"})]
)
def test_wrong_credentials_are_one_sentence_without_them(kind: str, wrong: dict[str, str]) -> None:
    place = server(kind).place(unique("wrong"))
    with pytest.raises(Failed) as refused:
        SparkCheckpoint(place.url, options={**place.options, **wrong}).exists()
    assert "credentials" in refused.value.remedy
    assert not [secret for secret in wrong.values() if secret in str(refused.value)]


def test_input_files_beside_the_checkpoint_are_looked_at(account: tuple[Place, Outside]) -> None:
    place, store = account
    for name in ("in/plain.csv", "in/with space.csv", "in/%20x.csv"):
        store.put(name, b"12345")
    look = InputListing(f"{place.url}/checkpoint", options=place.options)
    files = [InputFile(f"{place.url}/in/{name}", 1) for name in ("plain.csv", "with%20space.csv", "%2520x.csv", "none.csv")]
    seen = [one for one in look.at(files) if one is not None]
    assert [one.size_bytes for one in seen] == [5, 5, 5, None]
    planned = [InputFile(file.path, one.modified_ms or 0) for file, one in zip(files, seen, strict=True)]
    with pytest.raises(InputChanged, match=r"/in/none\.csv is gone\."):
        require_unchanged(BatchId(3), {SourceName("s"): planned}, look=look)
    require_unchanged(BatchId(3), {SourceName("s"): files})


@pytest.mark.parametrize("account", ["az", "gs", "s3"], indirect=True)
def test_an_object_that_was_overwritten_is_refused_until_its_time_is_noted(account: tuple[Place, Outside]) -> None:
    """A store gives each object its own time, also one that is put back as it was; on HDFS it can be set (tests/crash)."""
    place, store = account
    name = "in/with space and 'quote'.csv"
    store.put(name, b"12345")
    look = InputListing(f"{place.url}/checkpoint", options=place.options)
    url = f"{place.url}/{quote(name)}"
    [first] = look.at([InputFile(url, 1)])
    assert first is not None
    assert first.modified_ms is not None
    assert abs(first.modified_ms / 1000 - time.time()) < 60
    inputs = {SourceName("s"): [InputFile(url, first.modified_ms + 789)]}
    require_unchanged(BatchId(3), inputs, look=look)
    deadline = time.monotonic() + 10
    while look.at([InputFile(url, 1)]) == [first]:  # an object of the same second is taken for the one that was planned
        assert time.monotonic() < deadline
        store.put(name, b"12345")
    for data in (b"12", b"12345"):
        store.put(name, data)
        with pytest.raises(InputChanged, match=r"quote'\.csv was modified at \d+\.000, expected") as refused:
            require_unchanged(BatchId(3), inputs, look=look)
    carry_out(refused.value.remedy)
    require_unchanged(BatchId(3), inputs, look=look)
    assert store.get(name) == b"12345"
    store.put(name, b"12")
    with pytest.raises(InputChanged, match="was modified at"):
        require_unchanged(BatchId(3), inputs, look=look, delivered=True)


def test_a_look_at_input_files_costs_a_request_for_each(account: tuple[Place, Outside]) -> None:
    """On HDFS two: what is noted on a file is another answer."""
    place, store = account
    for number in range(5):
        store.put(f"in/{number}.csv", b"1")
    look = InputListing(place.url, options=place.options)
    before = requests_to(f"{place.url}/in")
    look.at([InputFile(f"{place.url}/in/{number}.csv", 1) for number in range(5)])
    assert requests_to(f"{place.url}/in") - before == (10 if place.url.startswith("hdfs:") else 5)


def test_input_files_that_cannot_be_seen_are_passed_over(account: tuple[Place, Outside]) -> None:
    """In another bucket or store than the checkpoint, or where the credentials of the checkpoint do not reach."""
    place, store = account
    store.put("in/a.csv", b"1")
    file = InputFile(f"{place.url}/in/a.csv", 1)
    for checkpoint in ("/data/checkpoint", "s3://elsewhere/c", "hdfs://elsewhere:1/c", "az://else@where/c", "gs://elsewhere/c"):
        assert InputListing(checkpoint, options={}).at([file]) == [None]
    odd = [InputFile(f"{place.url}//a.csv", 1), InputFile("dbfs:/a", 1)]
    assert InputListing(place.url, options=place.options).at(odd) == [None] * 2
