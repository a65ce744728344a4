"""`penstock metrics`: serves where pipelines stand to Prometheus and to probes, from outside their drivers."""

import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.opening import Json, OverridesOfEach, pipeline
from penstock.cli.output import print_line
from penstock.errors import Usage

if TYPE_CHECKING:
    from penstock.observe.listening import Listening
    from penstock.observe.page.watched import Watched

DEFAULT = "127.0.0.1:9464"
_MAKE_ONE = "Write one, such as: openssl rand -hex 32 > {}"


def metrics(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="The pipeline files.", show_default=False)] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")] = DEFAULT,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A file with the token that whoever asks for metrics has to send.", show_default=False),
    ] = None,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="Show metrics to everyone who reaches an address of the network.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Speak TLS with this certificate (PEM).", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The certificate's key, where it is another file.", show_default=False)
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print alerts as a rule file of Prometheus instead.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana instead.")] = False,
    overrides: OverridesOfEach = None,
    as_json: Json = False,
) -> None:
    """Serve metrics to Prometheus at /metrics, and health at /livez, /readyz and /healthz, until SIGTERM or Ctrl-C.

    Works beside running drivers, without Java. Stores are asked when somebody asks here, and not otherwise.
    """
    if rules or dashboard:
        _print_file(files, rules=rules, dashboard=dashboard, as_json=as_json)
        return
    if not files:
        raise Usage("Missing argument 'FILE...'.", remedy="See `penstock metrics --help`.")
    where = _listening(listen, token_file=token_file, open_to_all=without_token, certificate=tls_cert, key=tls_key)
    pipelines = _watched(files, overrides)
    from dataclasses import replace

    from penstock.observe.listening import listen as listening_server

    with listening_server(where, pipelines) as server:
        url = replace(where, port=server.server_port).url
        for number in (signal.SIGTERM, signal.SIGINT):
            # `shutdown` waits for the loop that this handler interrupts.
            signal.signal(number, lambda *_: Thread(target=server.shutdown).start())
        _say(url, [watched.name for watched in pipelines], as_json=as_json)
        server.serve_forever(poll_interval=0.1)


def _print_file(files: Sequence[str] | None, *, rules: bool, dashboard: bool, as_json: bool) -> None:
    """Print what is the same for every pipeline."""
    from penstock.observe.alerts import rule_file, rule_groups
    from penstock.observe.dashboard import dashboard_file, dashboard_model

    if files or (rules and dashboard):
        raise Usage(
            "--rules and --dashboard each print one file, which is the same for all pipelines.",
            remedy="Give one of them, and no FILE: penstock metrics --rules > penstock.rules.yml",
        )
    if as_json:
        print_line(rule_groups() if rules else dashboard_model())
    else:
        sys.stdout.write(rule_file() if rules else dashboard_file())


def _listening(
    listen: str, *, token_file: Path | None, open_to_all: bool, certificate: Path | None, key: Path | None
) -> "Listening":
    from penstock.observe.listening import Listening
    from penstock.support.listening import host_and_port, is_loopback

    try:
        host, port = host_and_port(listen)
    except ValueError:
        raise Usage(
            f"--listen is HOST:PORT, found {listen!r}.",
            remedy="Give both, the port up to 65535, such as 127.0.0.1:9464, or [::1]:9464 for an address of IPv6.",
        ) from None
    token = None if token_file is None else _token(token_file)
    if token is None and not open_to_all and not is_loopback(host):
        raise Usage(
            f"--listen {listen} shows where the pipelines stand to everyone who reaches that address.",
            remedy="Give --token-file PATH, or --without-token where the network itself keeps others out.",
        )
    if key is not None and certificate is None:
        raise Usage("--tls-key without --tls-cert.", remedy="Give the certificate, too.")
    return Listening(host=host, port=port, token=token, certificate=certificate, key=key)


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise Usage(f"The token cannot be read from {path}: {cause}.", remedy=_MAKE_ONE.format(path)) from cause
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise Usage(
            f"{path} holds no token: one word of ASCII characters is expected.",
            remedy=_MAKE_ONE.format(path),
        )
    return token


def _watched(files: Sequence[str], overrides: Sequence[str] | None) -> "list[Watched]":
    pipelines = [pipeline(file, overrides) for file in files]
    require_told_apart([found.settings.pipeline for found in pipelines])
    return [found.watched() for found in pipelines]


def require_told_apart(pipelines: Sequence[str]) -> None:
    """Raise Usage if two files are of one pipeline."""
    name, times = Counter(pipelines).most_common(1)[0]
    if times > 1:
        raise Usage(
            f"{times} files are of the pipeline {name!r}, and nobody could tell their figures apart.",
            remedy="Name each pipeline once. Two pipelines of one name need a command each.",
        )


def _say(url: str, pipelines: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_line({"url": url, "pipelines": pipelines})
        return
    sys.stdout.write(f"metrics of {', '.join(pipelines)} at {url}/metrics, the page at {url}/; Ctrl-C ends it\n")
    sys.stdout.flush()
