"""Gives one event to one target: a request to its URL, or a run of its command."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from penstock.errors import Failed, Retryable
from penstock.observe.export.event import Event
from penstock.spec.export import EventTarget

Notify: TypeAlias = Callable[[Event], None]
"""Gives an event away. Raises Retryable where another try can help, any other error where none can."""


def notify_of(target: EventTarget, *, directory: Path | None) -> Notify:
    """Return what gives events to `target`. Commands run in `directory`. Raises ImportError without the HTTP client."""
    return _command(target, directory) if target.url is None else _webhook(target)


def _webhook(target: EventTarget) -> Notify:
    from penstock.sink.http.client import Client, Endpoint  # noqa: PLC0415 - an extra

    assert target.url is not None
    assert target.place is not None
    client = Client(
        Endpoint(
            url=target.url,
            name=target.place,
            timeout_s=target.timeout / 1000,
            headers=target.headers,
            token=target.token,
            signing_key=target.signing_key,
            ca_file=target.ca_file,
            certificate_file=target.certificate_file,
            key_file=target.key_file,
        )
    )
    return lambda event: client.post(event.body, key=event.event_id, headers={"Content-Type": "application/json"})


def _command(target: EventTarget, directory: Path | None) -> Notify:
    def run(event: Event) -> None:
        own = {"PENSTOCK_EVENT": event.name, "PENSTOCK_PIPELINE": event.pipeline}
        try:
            process = subprocess.Popen(
                target.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                env={**os.environ, **own},
                start_new_session=True,  # Ctrl-C is for the run
            )
        except OSError as error:
            raise Failed(f"{target.command[0]} cannot be run: {error.strerror}.", remedy="Correct `command`.") from error
        with process:
            _give(process, event, timeout_s=target.timeout / 1000)
        if process.returncode:
            raise Retryable(f"{target.command[0]} ended with exit code {process.returncode}.", remedy="Look why.")

    return run


def _give(process: "subprocess.Popen[bytes]", event: Event, *, timeout_s: float) -> None:
    """Write the event to the command's input and wait for its end. Raises Retryable if it takes too long: it is killed then."""
    try:
        process.communicate(event.body, timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        raise Retryable(
            f"{process.args[0]!s} did not end within {timeout_s:g} s.",  # type: ignore[index]
            remedy="Give it a longer `timeout`.",
        ) from late
