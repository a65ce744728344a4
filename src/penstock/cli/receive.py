"""`penstock receive`: takes events from clients and makes them durable in a journal, until a signal stops it."""

import sys
from typing import TYPE_CHECKING

from penstock.cli.opening import File, Json, Overrides
from penstock.cli.output import print_line
from penstock.errors import Usage

if TYPE_CHECKING:
    from penstock.receive.receiver import Listening


def receive(*, file: File, overrides: Overrides = None, as_json: Json = False) -> None:
    """Receive events by HTTP, TCP, syslog, MQTT or AMQP and acknowledge them once they are durable in the journal.

    Spark is not started. SIGTERM or Ctrl-C end it; what was read is answered before. A pipeline with `format: journal`
    delivers the events.
    """
    from penstock.receive.receiver import receive as run
    from penstock.spec.load import load

    settings = load(file, overrides or ()).receive
    if settings is None:
        raise Usage(
            f"{file} has no `receive`.",
            remedy="Add a source with format: journal and path: ./journal, and "
            "receive: {journal: ./journal, http: {listen: 127.0.0.1:8080}}",
        )
    run(settings, ready=lambda listening: _ready(listening, as_json=as_json))


def _ready(listening: "Listening", *, as_json: bool) -> None:
    if as_json:
        print_line(listening)
        return
    where = " and ".join(f"{name} {address}" for name, address in listening.addresses.items())
    sys.stdout.write(f"receiving at {where}, into {listening.journal}\n")
    sys.stdout.flush()
