"""A driver serves metrics of its own pipeline as `metrics` in the file says: to whom it should, and no longer than it runs."""

import re
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from tests.unit.test_metrics import FILE, PAGE, TOKEN

from penstock.errors import DependencyMissing, Failed, Usage
from penstock.run.pipeline import Pipeline


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METRICS_TOKEN", TOKEN)


def pipeline(metrics: str = "") -> Pipeline:
    Path("f.yaml").write_text(FILE + metrics)
    return Pipeline.from_file("f.yaml")


def got(url: str, token: str = "") -> tuple[int, str]:
    request = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_metrics_are_for_those_who_send_the_token_while_the_body_runs() -> None:
    with pipeline('metrics: {listen: "127.0.0.1:0", token: "${METRICS_TOKEN}"}').metrics_served() as url:
        assert url is not None
        assert got(f"{url}/livez") == (200, "ok\n")
        assert got(f"{url}/metrics")[0] == 401
        code, text = got(f"{url}/metrics", TOKEN)
        assert (code, 'penstock_health{pipeline="shop",state="new"} 1.0' in text) == (200, True)
    with pytest.raises(URLError, match="refused"):
        urlopen(f"{url}/livez", timeout=10)


def test_without_the_setting_nothing_is_served() -> None:
    with pipeline().metrics_served() as url:
        assert url is None


def test_the_line_of_the_page_is_valid() -> None:
    [line] = re.findall(r"^(metrics: \{.*\})", PAGE.read_text(), re.MULTILINE)
    metrics = pipeline(line).settings.metrics
    assert metrics is not None
    assert (metrics.listen, metrics.token) == ("0.0.0.0:9464", TOKEN)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1"])
def test_an_address_of_the_network_wants_a_token(host: str) -> None:
    with pytest.raises(Usage, match=r"metrics shows where the pipeline stands to everyone who reaches that address"):
        pipeline(f'metrics: {{listen: "{host}:9464"}}')
    assert pipeline(f'metrics: {{listen: "{host}:9464", without_token: true}}').settings.metrics is not None


def test_an_address_in_use_is_told() -> None:
    with pipeline('metrics: {listen: "127.0.0.1:0"}').metrics_served() as url:
        taken = str(url).removeprefix("http://")
        second = pipeline(f'metrics: {{listen: "{taken}"}}').metrics_served()
        with pytest.raises(Failed, match=f"Cannot listen on {taken}: Address already in use"), second:
            pass


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.observe.endpoint", None)
    with pytest.raises(DependencyMissing) as told, pipeline('metrics: {listen: "127.0.0.1:0"}').metrics_served():
        pass
    assert "pip install 'prometheus-client<" in str(told.value)
