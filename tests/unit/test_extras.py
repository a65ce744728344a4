"""The command of a remedy installs just what the extra brings, as pyproject.toml has it."""

import re
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from tests.architecture.reading import PACKAGE, ROOT

from penstock.support.extras import install_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NAMED = sorted({name for path in PACKAGE.rglob("*.py") for name in re.findall(r"install_command\('(\w+)'\)", path.read_text())})


def needed_by(extra: str) -> set[tuple[str, ...]]:
    """Each package's name and the parts of its range, in an order of their own."""
    found = set[tuple[str, ...]]()
    for requirement in EXTRAS[extra]:
        if own := re.fullmatch(r"penstock\[(.+)\]", requirement):
            found.update(*map(needed_by, own[1].split(",")))
        else:
            found.add(parts(requirement))
    return found


def parts(requirement: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"[<>=!~]+[^,]+|[\w.\[\]-]+(?=[<>=!~]|$)", requirement.lower())))


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_installed_by_its_packages(extra: str) -> None:
    command = install_command(extra)
    assert command.startswith("pip install ")
    assert {parts(requirement) for requirement in re.findall(r"'([^']+)'", command)} == needed_by(extra)


def test_every_remedy_names_an_extra() -> None:
    assert set(NAMED) <= set(EXTRAS)
    assert {"java", "kafka", "metrics"} <= set(NAMED)


def test_without_such_an_extra_the_package_itself_is_named() -> None:
    assert install_command("dbapi", package="oracledb") == "pip install 'oracledb'"


def test_code_that_was_sent_without_being_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("penstock.support.extras.requires", requires)
    assert install_command("kafka") == "pip install 'penstock[kafka]', from Penstock's wheel"
