import csv
import json
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from docs.pipeline_file import schema
from ruamel.yaml import YAML

from penstock import errors
from penstock.cli.app import main
from penstock.cli.init import Template, make_project
from penstock.errors import Failed, Usage
from penstock.spec.delta import Delta
from penstock.spec.load import load
from penstock.spec.sink import Parquet

TEMPLATES = list(Template)
INTO_ACCOUNTS = (Template.FILES, Template.RATE)


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("template", INTO_ACCOUNTS)
def test_the_pipeline_file_of_a_template_is_valid(tmp_path: Path, template: Template) -> None:
    project = make_project(tmp_path / "my shop", template)
    settings = load(tmp_path / "my shop" / "pipeline.yaml")
    assert settings.pipeline == project.pipeline == "my-shop"
    lake = settings.sinks["lake"]
    assert isinstance(lake, Parquet)
    assert len(lake.accounts) == 3
    assert all(account.directory.is_relative_to(tmp_path / "my shop" / "lake") for account in lake.accounts.values())


def test_what_comes_next_with_kafka_begins_with_a_broker_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["init", str(tmp_path / "shop"), "--template", "kafka"])
    steps = [line.split()[:2] for line in capsys.readouterr().out.partition("Next:\n")[2].splitlines()]
    assert steps == [["cd", str(tmp_path / "shop")], ["make", "kafka"], ["make", "data"], ["make", "run"], ["make", "verify"]]
    targets = (tmp_path / "shop" / "Makefile").read_text()
    assert all(f"\n{target}:" in targets for verb, target in steps if verb == "make")


def test_the_pipeline_file_from_kafka_is_valid(tmp_path: Path) -> None:
    make_project(tmp_path / "shop", Template.KAFKA)
    settings = load(tmp_path / "shop" / "pipeline.yaml")
    sales = settings.sinks["sales"]
    assert isinstance(sales, Delta)
    assert (sales.directory, sales.write) == (tmp_path / "shop" / "tables" / "sales", "upsert")
    assert "[spark,java,kafka,delta,metrics]" in (tmp_path / "shop" / "Dockerfile").read_text()


@pytest.mark.parametrize("template", INTO_ACCOUNTS)
def test_data_and_state_can_be_somewhere_else(tmp_path: Path, template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path / "shop", template)
    monkeypatch.setenv("DATA", "/data")
    settings = load(tmp_path / "shop" / "pipeline.yaml")
    assert settings.home == "/data/state"
    assert settings.sinks["warehouse"].url == "sqlite:////data/warehouse.db"  # type: ignore[union-attr]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_file_is_complete(tmp_path: Path, template: Template) -> None:
    project = make_project(tmp_path / "shop", template)
    written = {path.relative_to(tmp_path / "shop").as_posix() for path in (tmp_path / "shop").rglob("*") if path.is_file()}
    assert written == set(project.files)
    assert {"Makefile", "README.md", "compose.yaml", "Dockerfile", "kubernetes.yaml", ".gitignore", ".dockerignore"} <= written
    for name in written - {"pipeline.schema.json"}:
        assert "{{" not in (tmp_path / "shop" / name).read_text(), name


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_editor_finds_the_schema(tmp_path: Path, template: Template) -> None:
    make_project(tmp_path, template)
    first = (tmp_path / "pipeline.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=./pipeline.schema.json"
    assert json.loads((tmp_path / "pipeline.schema.json").read_text()) == schema()


@pytest.mark.parametrize("template", TEMPLATES)
def test_recipes_are_yaml_and_start_the_pipeline(tmp_path: Path, template: Template) -> None:
    make_project(tmp_path / "My.Shop_1", template)
    yaml = YAML(typ="safe", pure=True)
    claim, job = yaml.load_all((tmp_path / "My.Shop_1" / "kubernetes.yaml").read_text())
    assert claim["metadata"]["name"] == job["metadata"]["name"] == "my-shop-1"
    container = job["spec"]["template"]["spec"]["containers"][0]
    service = yaml.load((tmp_path / "My.Shop_1" / "compose.yaml").read_text())["services"]["pipeline"]
    for arguments in (container["args"], service["command"]):
        assert arguments[:2] == ["run", "pipeline.yaml"]
        overrides = [value for option, value in pairwise(arguments) if option == "--set"]
        assert load(tmp_path / "My.Shop_1" / "pipeline.yaml", overrides).trigger.processing_time == 10_000


KUBERNETES = {
    kind: jsonschema.Draft202012Validator(found)
    for kind, found in json.loads(Path(__file__).with_name("kubernetes_1_29.json").read_text()).items()
}
"""What Kubernetes 1.29 says of a Job and of a claim, strictly: all names, and of those that the recipes have all values."""


@pytest.mark.parametrize("template", TEMPLATES)
def test_recipes_are_what_kubernetes_takes(tmp_path: Path, template: Template) -> None:
    make_project(tmp_path, template)
    manifests = list(YAML(typ="safe", pure=True).load_all((tmp_path / "kubernetes.yaml").read_text()))
    for manifest in manifests:
        KUBERNETES[manifest["kind"]].validate(manifest)
    pod = manifests[1]["spec"]["template"]["spec"]
    for wrong in ({"restartPolice": "Never"}, {"terminationGracePeriodSeconds": "60s"}, {"containers": [{"image": "x"}]}):
        changed = {**manifests[1], "spec": {"template": {"spec": {**pod, **wrong}}}}
        assert not KUBERNETES["Job"].is_valid(changed)


@pytest.mark.parametrize("template", TEMPLATES)
def test_recipes_start_a_pipeline_again_after_75_only(tmp_path: Path, template: Template) -> None:
    """Two deployments of one pipeline stopped each other in turn, for ever."""
    make_project(tmp_path, template)
    yaml = YAML(typ="safe", pure=True)
    assert yaml.load((tmp_path / "compose.yaml").read_text())["services"]["pipeline"]["restart"] == "no"
    assert 'ENTRYPOINT ["sh", "/pipeline/entrypoint.sh"]' in (tmp_path / "Dockerfile").read_text()
    _, job = yaml.load_all((tmp_path / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert (job["kind"], pod["restartPolicy"]) == ("Job", "Never")
    ends, goes_on = job["spec"]["podFailurePolicy"]["rules"]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PenstockError)]
    assert (ends["action"], ends["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert ends["onExitCodes"]["values"] == sorted({kind.exit_code for kind in kinds} - {75})
    assert ends["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert (goes_on["action"], goes_on["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_recipe_names_the_image_that_the_project_builds(tmp_path: Path, template: Template) -> None:
    """A tag `latest` is always pulled, from a registry that does not have it."""
    make_project(tmp_path / "My.Shop_1", template)
    yaml = YAML(typ="safe", pure=True)
    service = yaml.load((tmp_path / "My.Shop_1" / "compose.yaml").read_text())["services"]["pipeline"]
    text = (tmp_path / "My.Shop_1" / "kubernetes.yaml").read_text()
    pod = list(yaml.load_all(text))[1]["spec"]["template"]["spec"]
    containers = [*pod["initContainers"], *pod["containers"]]
    assert (service["build"], service["image"]) == (".", "my-shop-1:1")
    assert {(one["image"], one["imagePullPolicy"]) for one in containers} == {("my-shop-1:1", "IfNotPresent")}
    assert "docker build -t my-shop-1:1 ." in text


def test_probes_ask_a_process_beside_the_driver(tmp_path: Path) -> None:
    """They are about where the pipeline stands: Kubernetes would stop a driver in the middle of a batch by them."""
    make_project(tmp_path, Template.FILES)
    _, job = YAML(typ="safe", pure=True).load_all((tmp_path / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (beside,), (pipeline,) = pod["initContainers"], pod["containers"]
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & pipeline.keys()
    assert beside["restartPolicy"] == "Always"
    assert (beside["livenessProbe"]["httpGet"]["path"], beside["readinessProbe"]["httpGet"]["path"]) == ("/livez", "/readyz")
    assert (beside["env"], beside["volumeMounts"]) == (pipeline["env"], pipeline["volumeMounts"])
    program, verb, *rest = beside["command"]
    assert (program, verb) == ("penstock", "metrics")
    assert f"0.0.0.0:{beside['ports'][0]['containerPort']}" in rest
    with pytest.raises(SystemExit) as ended:  # every argument is known, and the first file is read
        main([verb, *(one.replace("pipeline.yaml", "gone.yaml") for one in rest)])
    assert ended.value.code == 2


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_container_runs_as_whoever_calls_make(tmp_path: Path, template: Template) -> None:
    """Shells have UID and do not export it, and none has GID."""
    make_project(tmp_path, template)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text('#!/bin/sh\necho "$OWNER" "$@" > called\n')
    (tmp_path / "bin" / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["make", "-s", "up"], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "called").read_text() == f"{os.getuid()}:{os.getgid()} compose up --build\n"
    service = YAML(typ="safe", pure=True).load((tmp_path / "compose.yaml").read_text())["services"]["pipeline"]
    assert service["user"] == "${OWNER:-1000:1000}"


def test_a_new_volume_gets_the_directory_that_the_pipeline_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(tmp_path / "volume"))
    assert entry_point(tmp_path, ENDS, 0, template=Template.FILES).wait(60) == 0
    assert load(tmp_path / "pipeline.yaml").sources["orders"].path == str(tmp_path / "volume" / "incoming")
    assert (tmp_path / "volume" / "incoming").is_dir()


ENDS = """#!/bin/sh
trap '' TERM
echo "$@" >> calls
code=$(head -n 1 codes)
sed -i 1d codes
exit "$code"
"""
RUNS = """#!/bin/sh
trap 'exit 0' TERM
echo "$@" >> calls
while :; do sleep 0.05; done
"""


def entry_point(
    root: Path, penstock: str, *codes: int, pause_s: int = 0, template: Template = Template.RATE
) -> "subprocess.Popen[bytes]":
    """The entry point of a project's container; a script in place of penstock ends with `codes`, one after the other."""
    make_project(root, template)
    (root / "bin").mkdir()
    (root / "bin" / "penstock").write_text(penstock)
    (root / "bin" / "penstock").chmod(0o755)
    (root / "codes").write_text("".join(f"{code}\n" for code in codes))
    environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}", "RETRY_AFTER_S": str(pause_s)}
    return subprocess.Popen(["sh", "entrypoint.sh", "run", "pipeline.yaml"], cwd=root, env=environment)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 137])
def test_the_entry_point_starts_again_after_75_only(tmp_path: Path, code: int) -> None:
    started = entry_point(tmp_path, ENDS, 75, 75, code, 0)
    assert started.wait(60) == code
    assert (tmp_path / "calls").read_text() == "run pipeline.yaml\n" * 3


@pytest.mark.parametrize("penstock", [RUNS, ENDS], ids=["while it runs", "in the pause"])
def test_the_entry_point_hands_a_stop_on_and_starts_nothing_again(tmp_path: Path, penstock: str) -> None:
    """It says that there is more to do: Kubernetes would take 0 for the end of a pipeline whose node is drained."""
    started = entry_point(tmp_path, penstock, 75, 0, pause_s=600)
    while not (tmp_path / "calls").exists():
        assert started.poll() is None
        threading.Event().wait(0.01)
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 75
    assert (tmp_path / "calls").read_text() == "run pipeline.yaml\n"


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_makefile_lists_its_targets(tmp_path: Path, template: Template) -> None:
    make_project(tmp_path, template)
    done = subprocess.run(["make", "-s"], cwd=tmp_path, capture_output=True, text=True, check=True)
    listed = {line.split("\t")[0] for line in done.stdout.splitlines()}
    assert {"help", "check", "run", "status", "verify", "clean"} <= listed
    assert all("\t" in line for line in done.stdout.splitlines())


def test_the_first_target_that_needs_orders_makes_some(tmp_path: Path) -> None:
    """Else `make check`, which comes before `make run` in `make help`, is refused for want of the directory."""
    project = make_project(tmp_path / "shop", Template.FILES)
    command = ["make", "--no-print-directory", "-n", "check", "PENSTOCK=penstock", "PYTHON=python3"]
    done = subprocess.run(command, cwd=project.directory, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["python3 generate.py", "penstock check pipeline.yaml"]


def test_the_generator_adds_different_orders_each_time(tmp_path: Path) -> None:
    make_project(tmp_path, Template.FILES)
    for _ in range(2):
        subprocess.run([sys.executable, "generate.py", "2", "50"], cwd=tmp_path, capture_output=True, check=True)
    files = sorted((tmp_path / "incoming").iterdir())
    assert [file.name for file in files] == [f"orders-{number:05d}.csv" for number in range(4)]
    rows = [row for file in files for row in csv.DictReader(file.read_text().splitlines())]
    assert [int(row["order_id"]) for row in rows] == list(range(200))
    assert {row["region"] for row in rows} == {"europe", "america", "asia"}


def test_nothing_is_overwritten_or_begun(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(Usage, match=r"README\.md exists already"):
        make_project(tmp_path, Template.FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be written"):
        make_project(tmp_path / "file" / "below", Template.RATE)


def test_init_tells_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["init", "shop", "--template", "rate"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.endswith("Next:\n  cd shop\n  make run\n  make verify\n")
    with pytest.raises(SystemExit):
        main(["init", "[red]brackets"])
    assert "  [red]brackets/pipeline.yaml\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["init", "other", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert (printed["directory"], printed["template"], printed["pipeline"]) == ("other", "files", "other")
