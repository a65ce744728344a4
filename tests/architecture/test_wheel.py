"""What README and the Dockerfile of `penstock init` say of installing works with the wheel that `make wheel` builds."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
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


def installed(command: str, target: Path, environment: Mapping[str, str]) -> None:
    """As `command` installs Penstock, without the packages that it needs, and into `target`."""
    pip, *words = shlex.split(command)
    assert (pip, words[0]) == ("pip", "install")
    alone = ["--no-deps", "--no-index", "--quiet", "--target", str(target)]
    done([sys.executable, "-m", "pip", *words, *alone], **environment)
    code = "import penstock, sys; print(penstock.__file__); from penstock.cli.init import make_project, Template, Path"
    code += "; print(make_project(Path(sys.argv[1]), Template.KAFKA).files)"
    said = done([sys.executable, "-c", code, str(target / "project")], PYTHONPATH=str(target))
    assert str(target) in said
    assert "Dockerfile" in said


def test_the_commands_of_the_readme_find_it(dist: Path, tmp_path: Path) -> None:
    exported = re.findall(r'^export (PIP_FIND_LINKS)="\$PWD/dist"', README, re.MULTILINE)
    commands = re.findall(r"^(pip install \S+)", README, re.MULTILINE)
    assert len(commands) == 2
    for number, command in enumerate(commands):
        installed(command, tmp_path / str(number), dict.fromkeys(exported, str(dist)))


def test_an_image_takes_it_from_the_folder_of_wheels(dist: Path, tmp_path: Path) -> None:
    text = (ROOT / "src" / "penstock" / "cli" / "templates" / "shared" / "Dockerfile").read_text().replace("{{extras}}", "spark")
    assert re.search(r"^COPY pipeline.yaml wheels\* /wheels/$", text, re.MULTILINE)
    [command] = re.findall(r"^RUN (pip install .*)", text, re.MULTILINE)
    installed(command.replace("/wheels", str(dist)), tmp_path / "image", {"PIP_FIND_LINKS": ""})
