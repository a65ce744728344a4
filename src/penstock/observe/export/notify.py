"""Gives one event to one target: a request to its URL, or a run of its command."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.errors import Failed, Retryable
from penstock.observe.export.event import Event
from penstock.spec.export import EventTarget


class Notify(Protocol):
    """Gives events to one target."""

    def __call__(self, event: Event) -> None:
        """Give an event away. Raises Retryable where another try can help, any other error where none can."""
        ...

    def give_up(self) -> None:
        """End a try that goes on, from another thread. No event is given away any more."""
        ...


def notify_of(target: EventTarget, *, directory: Path | None) -> Notify:
    """Return what gives events to `target`. Commands run in `directory`. Raises ImportError without the HTTP client."""
    return _Command(target, directory) if target.url is None else _Webhook(target)


class _Webhook:
    def __init__(self, target: EventTarget) -> None:
        from penstock.sink.http.client import Client, Endpoint  # noqa: PLC0415 - an extra

        assert target.url is not None
        assert target.place is not None
        self._client = Client(
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

    def __call__(self, event: Event) -> None:
        self._client.post(event.body, key=event.event_id, headers={"Content-Type": "application/json"})

    def give_up(self) -> None:
        """Nothing: a request ends with this process."""


class _Command:
    def __init__(self, target: EventTarget, directory: Path | None) -> None:
        self._command, self._timeout_s, self._directory = target.command, target.timeout / 1000, directory
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_given_up = False

    def __call__(self, event: Event) -> None:
        program = self._command[0]
        with self._started(event) as process:
            try:
                process.communicate(event.body, timeout=self._timeout_s)
            except subprocess.TimeoutExpired as late:
                _kill(process)
                text = f"{program} did not end within {self._timeout_s:g} s."
                raise Retryable(text, remedy="Give it a longer `timeout`.") from late
            finally:
                with self._turn:
                    self._process = None
        if process.returncode:
            raise Retryable(f"{program} ended with exit code {process.returncode}.", remedy="Look why.")

    def _started(self, event: Event) -> "subprocess.Popen[bytes]":
        program, own = self._command[0], {"PENSTOCK_EVENT": event.name, "PENSTOCK_PIPELINE": event.pipeline}
        with self._turn:
            if self._is_given_up:
                raise Failed(f"{program} is not run any more: the run has ended.", remedy="The next run tells it.")
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=self._directory,
                    env={**os.environ, **own},
                    start_new_session=True,  # Ctrl-C is for the run
                )
            except OSError as error:
                raise Failed(f"{program} cannot be run: {error.strerror}.", remedy="Correct `command`.") from error
            return self._process

    def give_up(self) -> None:
        with self._turn:
            self._is_given_up = True
            if self._process is not None and self._process.poll() is None:
                _kill(self._process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command, and what it started in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
