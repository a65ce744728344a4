"""The command line of the simulator: replay one schedule, or run a campaign of many."""

import argparse
import sys
from collections.abc import Sequence

from penstock.errors import Usage
from penstock.testing.simulator.explore import conduct, interleaving_work, pair_work, random_work, shape, single_work
from penstock.testing.simulator.schedule import Schedule, ViolationError, draw, parse_faults
from penstock.testing.simulator.simulation import Simulation


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0 if nothing was found, 1 if an invariant does not hold, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        if options.seed is None:
            return _campaign(options)
        if options.schedule is None:
            return _replay(draw(options.seed), quiet=options.quiet)
        world = shape(lose_commits=options.lose_commits, behind=options.behind)
        return _replay(Schedule(options.seed, world, parse_faults(options.schedule)), quiet=options.quiet)
    except Usage as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulator", description=__doc__)
    replay = parser.add_argument_group("replay one schedule")
    replay.add_argument("--seed", type=int, help="the random schedule of this seed; prints its trace")
    replay.add_argument("--schedule", metavar="FAULTS", help="these faults instead of random ones: STEP:KIND[:STEPS],… or none")
    replay.add_argument("--lose-commits", action="store_true", help="every start finds the newest commit of the checkpoint gone")
    replay.add_argument("--behind", action="store_true", help="each batch is published beside the next one")
    replay.add_argument("--quiet", action="store_true", help="no trace")
    many = parser.add_argument_group("a campaign")
    many.add_argument("--schedules", type=int, default=0, metavar="N", help="N random schedules")
    many.add_argument("--first-seed", type=int, default=0, metavar="N", help="their first seed")
    many.add_argument("--singles", action="store_true", help="every single fault")
    many.add_argument("--pairs", action="store_true", help="every ordered pair of faults")
    many.add_argument("--interleavings", action="store_true", help="two drivers, interleaved at every step")
    many.add_argument("--processes", type=int, default=1, metavar="N", help="processes to use")
    return parser


def _replay(schedule: Schedule, *, quiet: bool) -> int:
    simulation = Simulation(schedule)
    try:
        found, code = f"{simulation.run()}: every invariant holds.", 0
    except ViolationError as violation:
        found, code = f"{violation}\nReplay: {schedule.command}", 1
    if not quiet:
        for driver, operation, subject in simulation.trace:
            sys.stdout.write(f"driver {driver:2d}  {operation:14s} {subject}\n")
    sys.stdout.write(f"trace {simulation.digest()}\n{found}\n")
    return code


def _campaign(options: argparse.Namespace) -> int:
    campaigns = {
        "single faults": single_work() if options.singles else None,
        "interleavings": interleaving_work() if options.interleavings else None,
        "pairs of faults": pair_work() if options.pairs else None,
        "random schedules": random_work(first_seed=options.first_seed, schedules=options.schedules)
        if options.schedules
        else None,
    }
    if not any(campaigns.values()):
        raise Usage("Nothing to do.", remedy="Give --seed, --schedules, --singles, --interleavings or --pairs.")
    for name, work in campaigns.items():
        if work is None:
            continue
        try:
            result = conduct(work, processes=options.processes)
        except ViolationError as violation:
            sys.stdout.write(f"{name}: {violation}\n")
            return 1
        sys.stdout.write(
            f"{name}: {result.schedules:,} passed in {result.took_s:.1f} s, {result.per_minute:,.0f} schedules a minute\n"
        )
    return 0
