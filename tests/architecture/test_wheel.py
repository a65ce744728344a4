"""What README and the Dockerfile of `penstock init` say of installing works with the wheel that `make wheel` builds."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT

README = (ROOT / "README.md").read_text()


@pytest.fixture(name="dist", scope="module")
def _dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `make wheel` built it, by the building tools that the tests' environment has, if make has set that up."""
    dist = tmp_path_factory.mktemp("dist")
    assert "\nmake wheel " in README
    tools = {"PIP_NO_BUILD_ISOLATION": "0"} if (ROOT / ".venv" / ".installed-dev").exists() else {}
    done(["make", "wheel", f"DIST={dist}"], **tools)
    return dist


def done(words: list[str], **environment: str) -> str:
    ended = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def installed(words: Sequence[str], target: Path) -> None:
    """As pip is told by `words` to install Penstock, without the packages that it needs, and into `target`."""
    alone = ["--no-deps", "--no-index", "--quiet", "--target", str(target)]
    done([sys.executable, "-m", *words, *alone])
    code = "import penstock, sys; print(penstock.__file__); from penstock.cli.init import make_project, Template, Path"
    code += "; print(make_project(Path(sys.argv[1]), Template.KAFKA).files)"
    said = done([sys.executable, "-c", code, str(target / "project")], PYTHONPATH=str(target))
    assert str(target) in said
    assert "Dockerfile" in said


def words_of_pip(command: str, *, wheels: str, dist: Path) -> list[str]:
    """What the shell makes of a command of pip that finds the wheel in `wheels`."""
    return done(["sh", "-c", f"printf '%s\\n' {command.replace(wheels, str(dist))}"]).splitlines()


def test_the_command_of_the_readme_installs_it(dist: Path, tmp_path: Path) -> None:
    [command] = re.findall(r'^(pip install "[^"]+")', README, re.MULTILINE)
    installed(words_of_pip(command, wheels="dist", dist=dist), tmp_path / "site")


def test_an_image_installs_it_from_the_folder_of_wheels(dist: Path, tmp_path: Path) -> None:
    text = (ROOT / "src" / "penstock" / "cli" / "templates" / "shared" / "Dockerfile").read_text().replace("{{extras}}", "spark")
    assert re.search(r"^COPY wheels /wheels$", text, re.MULTILINE)
    [command] = re.findall(r"^RUN (pip install .*)", text, re.MULTILINE)
    installed(words_of_pip(command, wheels="/wheels", dist=dist), tmp_path / "image")
