import pickle
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import Guarantee
from penstock.errors import Usage
from penstock.spec.document import _Reading
from penstock.spec.load import load
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import Parquet, PythonSink
from penstock.spec.table import SQLite

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
)
MERGED = "\n".join(["a0: &a0 {}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12))])
FILE = """\
pipeline: flights
home: ./state/flights
guarantee: exactly_once
spark:
  master: local[*]
  conf: {spark.sql.shuffle.partitions: 8, spark.ui.enabled: false}
sources:
  flights:
    format: csv
    path: ./incoming
    schema: "year INT, month INT"
    options: {header: true, maxFilesPerTrigger: 2}
transform:
  sql: SELECT * FROM flights WHERE dep_time IS NOT NULL
sinks:
  lake:
    type: parquet
    accounts:
      EWR: file:///data/ewr
      LGA: {url: ./out/lga, options: {region: eu-west-1}}
    route: {column: origin}
    partition_by: [month]
    target_file_size: 64MiB
  warehouse:
    type: sqlite
    url: sqlite:///warehouse.db
    table: flights
    write: upsert
    key: [year, month]
  mine:
    python: my.sinks:Mine
    depth: 3
trigger: {available_now: true}
"""

Loader = Callable[..., PipelineSettings]


@pytest.fixture(name="loaded")
def _loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    monkeypatch.chdir("/")

    def loaded(text: str, overrides: Sequence[str] = ()) -> PipelineSettings:
        (tmp_path / "f.yaml").write_text(text)
        return load(tmp_path / "f.yaml", overrides)

    return loaded


def test_a_file_is_read_from_a_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a deployment that was replaced: the paths of the file lie beside it."""
    (tmp_path / "f.yaml").write_text(FILE)
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    (tmp_path / "old").rmdir()
    assert load(tmp_path / "f.yaml", ()).sources["flights"].path == f"{tmp_path}/incoming"


def test_the_whole_file(loaded: Loader, tmp_path: Path) -> None:
    settings = loaded(FILE)
    assert settings.pipeline == "flights"
    assert settings.guarantee is Guarantee.EXACTLY_ONCE
    assert settings.checkpoint.url == f"{tmp_path}/state/flights/checkpoint"
    assert settings.spark.conf == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    source = settings.sources["flights"]
    assert (source.format, source.path, source.schema_ddl) == ("csv", f"{tmp_path}/incoming", "year INT, month INT")
    assert source.options == {"header": "true", "maxFilesPerTrigger": "2"}
    lake, warehouse, mine = settings.sinks.values()
    assert isinstance(lake, Parquet)
    assert {name: account.url for name, account in lake.accounts.items()} == {
        "EWR": "file:///data/ewr",
        "LGA": f"file://{tmp_path}/out/lga",
    }
    assert (lake.route and lake.route.column, lake.partition_by, lake.target_file_size) == ("origin", ("month",), 64 * 2**20)
    assert isinstance(warehouse, SQLite)
    assert (warehouse.file, warehouse.write, warehouse.key) == (tmp_path / "warehouse.db", "upsert", ("year", "month"))
    assert isinstance(mine, PythonSink)
    assert (mine.python, mine.options) == ("my.sinks:Mine", {"depth": 3})
    assert settings.trigger.spark_arguments() == {"availableNow": True}


def test_settings_survive_pickling(loaded: Loader) -> None:
    settings = loaded(FILE)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_order_of_sources_is_that_of_the_file(loaded: Loader) -> None:
    text = FILE.replace("sources:\n", "sources:\n  zulu: {format: rate}\n  alpha: {format: rate}\n")
    assert list(loaded(text).sources) == ["zulu", "alpha", "flights"]


def test_variables_are_replaced(loaded: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE", "flights_2026")
    monkeypatch.setenv("CREATE", "false")
    monkeypatch.setenv("EMPTY", "")
    text = FILE.replace("table: flights", "table: ${TABLE}\n    create: ${CREATE}").replace(
        "dep_time IS NOT NULL", "a = '${EMPTY}' AND b = '${EMPTY:-default}' AND c = '${NOT_SET:-}' AND d = '$${e}'"
    )
    settings = loaded(text)
    warehouse = settings.sinks["warehouse"]
    assert isinstance(warehouse, SQLite)
    assert (warehouse.table, warehouse.create) == ("flights_2026", False)
    assert settings.transform is not None
    assert settings.transform.sql == "SELECT * FROM flights WHERE a = '' AND b = 'default' AND c = '' AND d = '${e}'"


def test_a_number_from_the_environment_stays_text_where_text_is_expected(loaded: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBER", "0012")
    settings = loaded(FILE.replace("table: flights", "table: ${NUMBER}").replace("header: true", "nullValue: '${NUMBER}'"))
    assert isinstance(settings.sinks["warehouse"], SQLite)
    assert settings.sinks["warehouse"].table == "0012"
    assert settings.sources["flights"].options["nullValue"] == "0012"


def test_secrets_are_in_no_error_and_no_representation(loaded: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "geheim-geheim")
    settings = loaded(FILE.replace("header: true", "nullValue: '${SECRET}'"))
    assert settings.sources["flights"].options["nullValue"] == "geheim-geheim"
    assert "geheim" not in repr(settings)
    assert "geheim" not in str(settings.shown())
    for wrong in (
        "output_mode: ${SECRET}",
        "guarantee: ${SECRET}",
        "spark: {master: ['${SECRET}']}",
        "ledger: redis://u:${SECRET}@h/d",
    ):
        with pytest.raises(Usage) as caught:
            loaded(FILE.replace("guarantee: exactly_once\n", "").replace("spark:\n  master", "spark_:\n  master") + wrong + "\n")
        assert "geheim" not in str(caught.value)


def test_overrides_replace_values(loaded: Loader) -> None:
    settings = loaded(
        FILE,
        [
            "trigger={processing_time: 10s}",
            "sinks.lake.partition_by=[year, month]",
            "sinks.lake.partition_by.0=day",
            "spark.conf.spark.sql.shuffle.partitions=2",
            "sources.flights.options.maxFilesPerTrigger=7",
            "spark.packages=[a:b:1]",
        ],
    )
    assert settings.trigger.spark_arguments() == {"processingTime": "10000 milliseconds"}
    assert isinstance(settings.sinks["lake"], Parquet)
    assert settings.sinks["lake"].partition_by == ("day", "month")
    assert settings.spark.conf["spark.sql.shuffle.partitions"] == "2"
    assert settings.sources["flights"].options["maxFilesPerTrigger"] == "7"
    assert settings.spark.packages == ("a:b:1",)


def test_yaml_anchors_and_merges(loaded: Loader) -> None:
    text = FILE.replace("  flights:\n    format: csv", "  flights: &files\n    format: csv") + ("output_mode: append\n")
    text = text.replace("transform:\n", "  late:\n    <<: *files\n    path: ./late\ntransform:\n")
    settings = loaded(text)
    assert settings.sources["late"].schema_ddl == "year INT, month INT"
    assert settings.sources["late"].path is not None
    assert settings.sources["late"].path.endswith("/late")


@pytest.mark.parametrize("keyword", ["no", "on", "NO", "1e3", "0x1F", "null"])
def test_keys_are_always_text(loaded: Loader, keyword: str) -> None:
    settings = loaded(FILE.replace("EWR: file", f"{keyword}: file"))
    assert isinstance(settings.sinks["lake"], Parquet)
    assert keyword in settings.sinks["lake"].accounts


@pytest.mark.parametrize("text", [BOMB, MERGED])
def test_aliases_that_multiply_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """After so many steps and no more, whatever a machine takes for them: of 10^12, in which the file would end."""
    steps = count(1)

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            assert next(steps) <= 50_001
            return step(*given)

        return run

    for name in ("value", "_inherited"):
        monkeypatch.setattr(_Reading, name, counted(getattr(_Reading, name)))
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(Usage, match=r"f\.yaml:\d+: the file stands for more than 50,000 values") as refused:
        load(tmp_path / "f.yaml")
    assert "aliases" in refused.value.remedy


def test_lists_inside_of_lists_without_end_are_refused(tmp_path: Path) -> None:
    for text in ("pipeline: " + "[" * 600, "pipeline: &a {<<: *a}"):
        (tmp_path / "f.yaml").write_text(text)
        with pytest.raises(Usage, match="nested too deeply"):
            load(tmp_path / "f.yaml")
    with pytest.raises(Usage, match="nested too deeply"):
        load(tmp_path / "f.yaml", ["pipeline=" + "[" * 600])


def test_aliases_of_a_usual_size_are_read(tmp_path: Path) -> None:
    accounts = ", ".join(f"a{number}: *one" for number in range(1000))
    (tmp_path / "f.yaml").write_text(
        f"pipeline: p\nhome: h\nsources: {{s: {{format: rate}}}}\n"
        f"sinks: {{lake: {{type: memory}}}}\nspark: {{conf: {{one: &one 5, {accounts}}}}}\n"
    )
    assert len(load(tmp_path / "f.yaml").spark.conf) == 1001
