from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.spec import Account, DeliverySettings, Memory, Sqlite
from penstock.spec.place import local_path, same_or_nested


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
    assert Sqlite(url=url, table="t").file == Path(path.format(here=tmp_path))
    assert Sqlite(url=url, table="t").url == "sqlite:///" + path.format(here=tmp_path)


@pytest.mark.parametrize("url", ["x.db", "sqlite://x.db", "sqlite:///", "sqlite://", "postgresql://host/db"])
def test_what_is_no_sqlite_file_is_refused(url: str) -> None:
    with pytest.raises(Usage, match="should be a SQLite URL"):
        Sqlite(url=url, table="t")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://k:geheim@bucket/x", "is no URL of a place at s3://"),
        ("file://host/x", "found the host 'host'"),
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
