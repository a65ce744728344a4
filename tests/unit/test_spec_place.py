import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock import Delivery
from penstock.errors import Usage
from penstock.sink.spool.root import root_at
from penstock.spec.combinations import own_output_complaints
from penstock.spec.location import Account, Quarantine
from penstock.spec.merge import Merge
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.place import local_path, same_or_nested
from penstock.spec.sink import Memory, Parquet
from penstock.spec.source import Source
from penstock.spec.table import SQLite


@pytest.fixture(autouse=True)
def _in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data", "{here}/data"),
        ("./data/../x", "{here}/x"),
        ("/abs/data/", "/abs/data"),
        ("file:///abs/a b%20c", "/abs/a b%20c"),
        ("file:/abs", "/abs"),
        ("file://./data", "{here}/data"),
        ("file:data", "{here}/data"),
        ("file://localhost/abs", "/abs"),
    ],
)
def test_accounts_are_absolute_file_urls(url: str, expected: str, tmp_path: Path) -> None:
    account = Account(url=url)
    assert account.url == "file://" + expected.format(here=tmp_path)
    assert account.directory == Path(expected.format(here=tmp_path))


def test_account_takes_a_path_and_the_home_of_the_user() -> None:
    assert Account(url=Path("/abs/data")).url == "file:///abs/data"  # type: ignore[arg-type]
    assert Account(url="~/data").directory == Path("~/data").expanduser()


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///x/y.db", "{here}/x/y.db"), ("sqlite:////abs/y.db", "/abs/y.db"), ("sqlite:///./y.db", "{here}/y.db")],
)
def test_sqlite_urls_have_three_slashes_for_relative_and_four_for_absolute(url: str, path: str, tmp_path: Path) -> None:
    assert SQLite(url=url, table="t").file == Path(path.format(here=tmp_path))
    assert SQLite(url=url, table="t").url == "sqlite:///" + path.format(here=tmp_path)


@pytest.mark.parametrize("url", ["x.db", "sqlite://x.db", "sqlite:///", "sqlite://", "postgresql://host/db"])
def test_what_is_no_sqlite_file_is_refused(url: str) -> None:
    with pytest.raises(Usage, match="should be a SQLite URL"):
        SQLite(url=url, table="t")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://k:geheim@bucket/x", "is no URL of a place at s3://"),
        ("file://host/x", "found the host 'host'"),
        ("file://me:geheim@host/x", "looks like user:password@host, found file://…"),
        ("file://me:geheim/geheim@host/x", "looks like user:password@host, found file://…"),
        ("", "found an empty text"),
    ],
)
def test_places_that_cannot_be_used_are_refused_without_showing_secrets(url: str, said: str) -> None:
    with pytest.raises(Usage) as caught:
        Account(url=url)
    assert said in caught.value.message
    assert "geheim" not in str(caught.value)


def test_defaults_are_below_home(tmp_path: Path) -> None:
    settings = DeliverySettings(pipeline="p", home="state", sinks={"m": Memory()})
    assert settings.home == f"{tmp_path}/state"
    assert settings.checkpoint.url == f"{tmp_path}/state/checkpoint"
    assert settings.ledger.url == f"sqlite:///{tmp_path}/state/ledger.db"
    assert settings.spool.url == f"{tmp_path}/state/spool"


def test_places_are_compared_behind_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert same_or_nested(f"file://{tmp_path}/link/x", f"file://{tmp_path}/real")
    assert not same_or_nested(f"file://{tmp_path}/real-too", f"file://{tmp_path}/real")
    assert local_path("s3://bucket/x") is None


@pytest.mark.parametrize(
    ("account", "path"),
    [
        ("{here}/lake", "{here}/lake"),
        ("{here}/lake", "{here}"),
        ("{here}/lake", "file:{here}/lake/a"),
        ("{here}/lake", "file://localhost{here}/lake"),
        ("{here}/lake/all", "{here}/la*"),
        ("{here}/lake/all", "{here}/lake*/all/n=1"),
        ("{here}/lake", "{here}/{in,lake}"),
        ("{here}/lake/all", "{here}/{in/x,la?e/{all,none}}/*"),
        ("{here}/lake", "{here}/[^i]ake"),
        ("s3://bucket/lake", "s3a://bucket/lake/n=1"),
        ("s3://bucket/lake", "s3a://bucket/*"),
        ("gs://bucket/lake", "gs://bucket/lake/"),
        ("az://c@account/lake", "abfss://c@account.dfs.core.windows.net/lake"),
    ],
)
def test_a_source_that_reads_what_a_sink_writes_is_refused(account: str, path: str, tmp_path: Path) -> None:
    sinks = {"lake": Parquet(accounts={"all": account.replace("{here}", str(tmp_path))})}
    for given in (path, f"{path}/"):
        assert own_output_complaints(sinks, {"s": given.replace("{here}", str(tmp_path))})


@pytest.mark.parametrize(
    ("account", "path"),
    [
        ("{here}/lake", "{here}/in*"),
        ("{here}/lake", "{here}/lake-too"),
        ("{here}/lake", "{here}/{in,lakes}/*"),
        ("s3://bucket/lake", "s3a://other/lake"),
        ("s3://bucket/lake", "gs://bucket/lake"),
        ("s3://bucket/lake", "s3a://bucket//in"),
        ("{here}/lake", "dbfs:/lake"),
    ],
)
def test_a_source_beside_what_a_sink_writes_is_none(account: str, path: str, tmp_path: Path) -> None:
    sinks = {"lake": Parquet(accounts={"all": account.replace("{here}", str(tmp_path))})}
    assert own_output_complaints(sinks, {"s": path.replace("{here}", str(tmp_path))}) == []


UNKNOWN = (
    "dbfs:/x",
    "dbfs://x",
    "DBFS:/x",
    "wasb:/x",
    "abc:x",
    "localhost:9000/x",
    "C:\\x",
    "C:/x",
    "s3:/bucket/x",
    "s3a:x",
    "hdfs:/x",
    "az:x",
    " s3://bucket/x",
    "\ts3://bucket/x",
    "s3 ://bucket/x",
    "s_3://bucket/x",
    "\u200bs3://bucket/x",
    " dbfs:/x",
    " sqlite:///x.db",
)
"""What would be a directory of that name below the working directory."""
PLACES: Mapping[str, Callable[[str], object]] = {
    "account": lambda place: Parquet(accounts={"all": place}),
    "account as a path": lambda place: Parquet(accounts={"all": Path(place)}),
    "home": lambda place: Delivery("p", home=place, sinks={"m": Memory()}),
    "checkpoint": lambda place: Delivery("p", home="home", checkpoint=place, sinks={"m": Memory()}),
    "ledger": lambda place: Delivery("p", home="home", ledger=place, sinks={"m": Memory()}),
    "spool": lambda place: Delivery("p", home="home", spool=place, sinks={"m": Memory()}),
    "quarantine": lambda place: Quarantine(url=place),
    "table of SQLite": lambda place: SQLite(url=f"sqlite:///{place}", table="t"),
    "ledger in SQLite": lambda place: Delivery("p", home="home", ledger=f"sqlite:///{place}", sinks={"m": Memory()}),
    "file of SQL": lambda place: Merge(file=place),
    "spool of a sink of one's own": root_at,
}


@pytest.mark.parametrize("place", UNKNOWN)
@pytest.mark.parametrize("kind", PLACES)
def test_a_place_that_is_not_understood_is_no_directory(kind: str, place: str, tmp_path: Path) -> None:
    """It was written to `./dbfs:/x`, in silence."""
    with pytest.raises(Usage) as caught:
        PLACES[kind](place)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [*(kind for kind in PLACES if kind != "spool of a sink of one's own"), "source"])
def test_a_server_without_its_scheme_is_no_directory(kind: str, tmp_path: Path) -> None:
    """`status` showed the path of the ledger, and the password in it."""
    places = {**PLACES, "source": lambda place: Source(format="text", path=place)}
    with pytest.raises(Usage, match=r"looks like user:password@host, found a text without scheme://") as caught:
        places[kind]("//me:gehe/im@host/db")
    assert "gehe" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_remedy_for_a_mounted_file_system_is_a_place() -> None:
    with pytest.raises(Usage, match=r"begins with dbfs:, which is no directory and no store .* Write /dbfs/data/x,"):
        Account(url="dbfs:/data/x")
    assert Account(url="/dbfs/data/x").directory == Path("/dbfs/data/x")


@pytest.mark.parametrize("name", ["./a:b", "sub/a:b", "./dbfs:/x", "./C:\\x", "2024:01", "./a:b@c"])
def test_a_name_with_a_colon_is_written_behind_a_directory(name: str, tmp_path: Path) -> None:
    assert Account(url=name).directory == Path(os.path.normpath(tmp_path / name))
    assert root_at(name).url == str((tmp_path / name).absolute())
    assert Source(format="text", path=name).path == os.path.normpath(tmp_path / name)


@pytest.mark.parametrize("path", ["s3a://bucket/in", "dbfs:/in", "hdfs:/in", "viewfs://cluster/in", "maprfs:///in", "own://x/in"])
def test_a_source_takes_every_url_of_spark(path: str) -> None:
    """Where Spark has no file system for it, it says so itself."""
    assert Source(format="text", path=path).path == path
    assert local_path(path) is None


@pytest.mark.parametrize("place", ["wasb://c@account/x", "wasb:/x", "viewfs://cluster/x", "maprfs:///x", "own://me:geheim@x/y"])
def test_a_checkpoint_is_where_penstock_reads_it_too(place: str) -> None:
    """A source may be there, which Spark alone reads; the checkpoint may be where its remedy says."""
    with pytest.raises(
        Usage, match=r"checkpoint.* is at \w+:, where Penstock cannot read it, and Penstock reads the checkpoint"
    ) as told:
        Delivery("p", home="home", checkpoint=place, sinks={"m": Memory()})
    assert "geheim" not in str(told.value)
    named = re.findall(r"\w+://", told.value.remedy)
    assert named == ["s3a://", "abfss://", "gs://", "hdfs://"]
    for url in ("s3a://b/x", "abfss://c@account.dfs.core.windows.net/x", "gs://b/x", "hdfs://name:8020/x"):
        assert Delivery("p", home="home", checkpoint=url, sinks={"m": Memory()}).checkpoint == url


@pytest.mark.parametrize("path", [" s3a://bucket/in", "s3 a://bucket/in"])
def test_a_url_of_a_source_behind_a_blank_is_refused(path: str) -> None:
    with pytest.raises(Usage, match="is neither a URL nor likely a directory"):
        Source(format="text", path=path)


@pytest.mark.parametrize("path", ["abc:/in", "C:\\in", "localhost:9000/in", "s3a:bucket/in"])
def test_a_path_of_a_source_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(Usage, match=r"Source: path begins with (abc|c|localhost|s3a):, which is no directory"):
        Source(format="text", path=path)


@pytest.mark.parametrize("letter", ["\0", "\ud800"])
@pytest.mark.parametrize("make", [lambda at: Account(url=at), lambda at: SQLite(url=f"sqlite:///{at}", table="t")])
def test_a_character_that_no_path_has_is_told(letter: str, make: Callable[[str], object]) -> None:
    """A ValueError of Python came out of the sinks, and elsewhere its words without the key."""
    with pytest.raises(Usage, match="url holds a character that no path has"):
        make(f"./a{letter}b")


def test_the_name_of_an_account_is_whole_unicode() -> None:
    with pytest.raises(Usage, match="should be a name of 1 to 200 printable characters"):
        Parquet(accounts={"a\ud800": "./a"})
