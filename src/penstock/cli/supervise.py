"""`penstock supervise`: runs pipelines, each in a process of its own, and starts them again by policy."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.opening import Json, OverridesOfEach
from penstock.cli.output import print_line
from penstock.errors import Usage
from penstock.support.printable import printable

if TYPE_CHECKING:
    from penstock.spec.pipeline import PipelineSettings
    from penstock.supervise.lease import Lease
    from penstock.supervise.restarts import DriverError
    from penstock.supervise.supervisor import Event, Supervised

_GRACE_S, _HUNG_AFTER_S, _FAILURES, _LEASE_S = 30.0, 600.0, 5, 5.0


def supervise(
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="The pipeline files.", show_default=False)],
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long a stop waits for a batch.")] = _GRACE_S,
    hung_after: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long a driver may give no sign of life before it is killed.")
    ] = _HUNG_AFTER_S,
    failures: Annotated[
        int, typer.Option(min=1, metavar="N", help="After how many failures in a row a pipeline is given up.")
    ] = _FAILURES,
    batch_timeout: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="How long a batch may take before its driver is killed.")
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What a driver, with Spark, may take before it is killed, such as 6GB.")
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Keep a driver warm, and let it begin when no other supervisor's driver runs.")
    ] = False,
    lease: Annotated[
        float,
        typer.Option(
            min=0.5,
            metavar="SECONDS",
            help="With --standby: it takes over when the active one has not renewed the lease for so long.",
        ),
    ] = _LEASE_S,
    overrides: OverridesOfEach = None,
    as_json: Json = False,
) -> None:
    """Run pipelines, each in a process of its own, and start again one that fails: always after 75, a few times after 1.

    After 2, 3 and 4, or for want of Java or a package, it is not started again. SIGTERM or Ctrl-C let the batches end; a second
    one kills the drivers. What a driver prints is in `run.log` of its pipeline's home.

    With --standby, on two machines: one driver runs, and another one, with Spark started, takes over within seconds.
    """
    import asyncio

    from penstock.supervise.driver import Limits
    from penstock.supervise.supervisor import supervise as look_after

    settings = _settings(files, overrides or ())
    supervised = _supervised(settings, overrides or (), grace_s=grace, lease_s=lease if standby else None)
    by_name = {each.pipeline: (file, each) for file, each in settings.items()}
    memory_bytes = math.inf if memory_limit is None else _bytes(memory_limit)
    limits = Limits(grace_s=grace, hung_after_s=hung_after, batch_s=batch_timeout or math.inf, memory_bytes=memory_bytes)

    printer = EventPrinter(as_json=as_json)

    def report(event: "Event") -> None:
        printer(event)
        if event.killed is not None:
            threading.Thread(target=tell_of_killed, args=(*by_name[event.pipeline], event.killed), name="penstock-tell").start()

    code = asyncio.run(look_after(supervised, limits, most_failures=failures, report=report))
    if code:
        raise typer.Exit(code)


def _bytes(size: str) -> int:
    from penstock.spec.scalar import size_bytes

    try:
        return size_bytes(size)
    except ValueError as error:
        raise Usage(f"--memory-limit is {size!r}, expected a size with a unit.", remedy="Write it like 6GB.") from error


def tell_of_killed(file: str, settings: "PipelineSettings", killed: str) -> None:
    """Tell the targets of `on_event` that a driver was killed, which it could not tell itself. Waits up to ten seconds."""
    if not settings.on_event:
        return
    from penstock.errors import Failed
    from penstock.observe.export.events import Events
    from penstock.observe.export.observation import Observation

    error = Failed(f"The driver {killed}.", remedy="Its supervisor starts it again, unless that happens too often.")
    try:
        events = Events(settings.pipeline, settings.on_event, home=settings.home, directory=Path(file).resolve().parent)
    except ImportError:  # the driver says so itself
        return
    Observation([events]).ended(error)


def _settings(files: Sequence[str], overrides: Sequence[str]) -> "Mapping[str, PipelineSettings]":
    """Return the settings of each file. Raises Usage for two that share a home."""
    from penstock.spec.load import load

    settings = {file: load(file, overrides) for file in files}
    home, times = Counter(each.home for each in settings.values()).most_common(1)[0]
    if times > 1 or len(settings) < len(files):
        raise Usage(f"Two files have the home {home}: each driver would fence the other.", remedy="Name each pipeline once.")
    return settings


def _supervised(
    settings: "Mapping[str, PipelineSettings]", overrides: Sequence[str], *, grace_s: float, lease_s: float | None
) -> "list[Supervised]":
    from penstock.supervise.supervisor import Supervised

    run = [sys.executable, "-m", "penstock", "run", "--json", f"--grace={grace_s}", *(f"--set={text}" for text in overrides)]
    return [
        Supervised(
            pipeline=each.pipeline,
            home=each.home,
            command=[*run, file],
            lease=None if lease_s is None else _lease(each, lease_s=lease_s),
        )
        for file, each in settings.items()
    ]


def _lease(settings: "PipelineSettings", *, lease_s: float) -> "Lease":
    """Return the lease of a pipeline, and warn of places that another machine does not have. Raises Usage without a ledger."""
    from penstock.core.model import PipelineName, new_nonce
    from penstock.ledger.open import open_ledger
    from penstock.spec.pipeline import without_ledger
    from penstock.spec.place import local_path
    from penstock.supervise.lease import KeepsLease, Lease, LeaseRecord
    from penstock.supervise.supervisor import OWNER

    if (text := without_ledger(settings)) is not None:
        raise Usage(f"Pipeline {settings.pipeline} can have no standby. {text}", remedy="Leave --standby out.")
    places = {"ledger": settings.ledger.url, "checkpoint": settings.checkpoint.url, "spool": settings.spool.url}
    if local := [f"{name} ({path})" for name, url in places.items() if (path := local_path(url)) is not None]:
        sys.stderr.write(_LOCAL.format(settings.pipeline, ", ".join(local)))
    pipeline = PipelineName(settings.pipeline)
    ledger = open_ledger(settings.ledger.url, pipeline=pipeline, options=settings.ledger.options)
    assert isinstance(ledger, KeepsLease)
    own = LeaseRecord(pipeline=pipeline, holder=new_nonce(), owner=OWNER, lease_ms=round(1000 * lease_s))
    return Lease(ledger, own, where=ledger.location)


_LOCAL = (
    "warning: {}: a standby on another machine takes over only if it has the same files: {}. "
    "Keep them on storage that both machines mount, or in a database or store.\n"
)


class EventPrinter:
    """Prints events. For people the error of a driver follows, unless it is the one that was printed for the driver before."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._errors: dict[str, DriverError] = {}

    def __call__(self, event: "Event") -> None:
        """Print one event."""
        if self._as_json:
            print_line(event)
            return
        lines, error = [event.text], event.error
        if error is not None and (event.state == "given up" or self._errors.get(event.pipeline) != error):
            self._errors[event.pipeline] = error
            lines += [f"error: {error.message}", error.remedy]
        sys.stdout.write("".join(f"{event.pipeline}: {printable(line)}\n" for line in lines))
        sys.stdout.flush()
