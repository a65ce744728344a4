"""The demo: real flights into three accounts and a database, killed in the middle, recovered, and proved. Run by `make demo`.

`make demo ARGS=push` is its second act: the flights are sent by HTTP, and the receiver is killed, too. Both use only the commands
that everyone has (`penstock check`, `run`, `receive`, `status`, `verify`). The demo may itself be killed at any moment: what is
there stays, and the next one goes on from it. A finished demo starts over; so does `make demo ARGS=--fresh`.
"""

import argparse
import fcntl
import json
import shutil
import signal
import sys
import time
from collections.abc import Mapping

from commands import COMMAND, PIPELINE, WORK, answer, console, penstock
from flights import ROWS, split
from proof import AIRPORTS, WAREHOUSE, compare, lake, rows_now
from push import WORK as PUSHED
from push import tell_push
from reader import Reader
from report import fail, heading, plain_table, proof_of, result

INCOMING = WORK / "incoming"
KILLED = WORK / "killed.json"
FINISHED = WORK / "finished"
FAULT = "rename.move=kill@30,hardlink.link=kill@30"
"""In the middle of publishing a batch: some of its files are there and some are not."""


def main(words: list[str]) -> int:
    """Tell one act, in order. The exit code is 0 only if every row is where it belongs exactly once."""
    arguments = parsed(words)
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if arguments.act == "push":
                return tell_push(arguments.flights, fresh=arguments.fresh)
            return tell(fresh=arguments.fresh)
        except BlockingIOError:
            return fail("Another demo is running in demo/work.")
        except KeyboardInterrupt:
            return fail("Interrupted. Nothing is lost: the same command goes on from here.")


def parsed(words: list[str]) -> argparse.Namespace:
    """What is to be shown."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=", description="Exactly-once delivery, though processes are killed.")
    parser.add_argument("act", nargs="?", choices=["files", "push"], default="files", help="flights from files, or sent by HTTP")
    parser.add_argument("--fresh", action="store_true", help="start over, also if an earlier demo was interrupted")
    parser.add_argument("--flights", type=int, default=ROWS, metavar="N", help=f"of push: how many flights, at most {ROWS}")
    return parser.parse_args(words)


def tell(*, fresh: bool) -> int:
    """The story."""
    started_s = time.monotonic()
    begin(fresh=fresh)
    heading("What is promised, before anything runs")
    if penstock("check", PIPELINE) != 0:
        return fail("The check failed, so nothing was started.")
    with Reader(WORK) as reader:
        if not KILLED.exists() and not run_until_killed():
            return fail("The run failed before it was killed.")
        before: dict[str, int] = json.loads(KILLED.read_text())
        heading("The same command again")
        if penstock("run", PIPELINE, "--available-now") != 0:
            return fail("The second run failed.")
    heading("Is it all there? First Penstock's own answer")
    verified = penstock("verify", PIPELINE) == 0
    heading("Then without Penstock: every row of the CSV file against every row in the accounts and in SQLite")
    places = compare(WORK)
    console.print(result(places, before), proof_of(reader), sep="\n")
    if not (verified and all(place.exact for place in places) and not reader.torn and not reader.vanished):
        return fail("That is not exactly once. Please report it with the folder demo/work.")
    FINISHED.touch()
    console.print(f"[bold green]Exactly once.[/] It took {time.monotonic() - started_s:.0f} s. Look around in demo/work, or try:")
    console.print(f"  {COMMAND} history {PIPELINE}\n  {COMMAND} status {PIPELINE}", style="bold")
    return 0


def begin(*, fresh: bool) -> None:
    """Start over, or go on where an interrupted demo stopped."""
    if fresh or FINISHED.exists():
        for path in WORK.iterdir():
            if path.name not in {"lock", PUSHED.name}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    console.print(
        f"{ROWS:,} flights left New York in 2013. They go into three storage accounts, one for each airport, and into\n"
        "a database: each flight exactly once, although the run is killed in the middle. All of it is in demo/work."
    )
    if INCOMING.exists():
        console.print("An earlier demo was interrupted; this one goes on from what it left.")
    else:
        number = split(INCOMING)
        console.print(f"They arrive as {number} CSV files in demo/work/incoming, two files a batch.")


def run_until_killed() -> bool:
    """Run, be killed, and note what readers see then. After a kill by hand so much may be delivered that the run just ends."""
    heading("A run that is killed (SIGKILL) in the middle of publishing a batch")
    code = penstock("run", PIPELINE, "--available-now", faults=FAULT)
    if code == 0:
        console.print("Earlier runs had delivered so much that this one ended before the kill.")
    elif code != -signal.SIGKILL:
        return False
    else:
        console.print("Killed.", style="bold red")
    seen = rows_now(WORK)
    show_left(seen)
    KILLED.write_text(json.dumps(seen))
    return True


def show_left(seen: Mapping[str, int]) -> None:
    """What readers see after the kill beside what the ledger has decided."""
    heading("What the killed run left")
    status = answer("status", PIPELINE)
    totals = status["totals"]
    decided = {lake(airport): totals["lake"].get(airport, {"rows": 0})["rows"] for airport in AIRPORTS}
    decided[WAREHOUSE] = totals["warehouse"][""]["rows"]
    table = plain_table("rows", "readers see", "decided", "still to be published")
    for place, rows in seen.items():
        table.add_row(place, *(f"{number:,}" for number in (rows, decided[place], decided[place] - rows)))
    console.print(table)
    console.print(
        f"Batch {status['last_batch_id']} is decided, so it is never computed again. What is still to be published waits\n"
        "in staging, where no reader looks."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
