"""Bugs planted in what a run sends to others: a receiver holds up the run, rows get out, or whoever is on call is not told."""

from tests.mutation.mutant import Mutant

EXPORT = "src/penstock/observe/export"
OF_EVENTS, OF_QUEUE = "tests/unit/test_events.py", "tests/unit/test_export_queue.py"

MUTANTS_OF_EXPORTS = (
    Mutant(
        bug=64,
        name="what-a-receiver-does-not-take-is-kept-for-ever",
        file=f"{EXPORT}/queue.py",
        find="if self._is_closed or len(self._waiting) >= self._capacity:",
        replace="if self._is_closed:",
        tests=(f"{OF_QUEUE}::test_a_receiver_that_hangs_holds_up_nobody_and_is_not_waited_for",),
    ),
    Mutant(
        bug=64,
        name="a-bug-of-an-exporter-fails-the-batch",
        file=f"{EXPORT}/observation.py",
        find="                tell(exporter)\n            except Exception as error:",
        replace="                tell(exporter)\n            except OSError as error:",
        tests=(f"{OF_EVENTS}::test_whatever_an_exporter_raises_stays_there",),
    ),
    Mutant(
        bug=62,
        name="each-restart-tells-of-the-same-failure",
        file=f"{EXPORT}/events.py",
        find="            if self.cause == event.cause:\n                return\n",
        replace="",
        tests=(f"{OF_EVENTS}::test_the_same_failure_is_told_once_until_batches_are_delivered_again",),
    ),
    Mutant(
        bug=62,
        name="a-failure-that-did-not-arrive-counts-as-told",
        file=f"{EXPORT}/events.py",
        find="                failure = error\n                continue\n",
        replace="                failure = error\n",
        tests=(f"{OF_EVENTS}::test_a_failure_that_did_not_arrive_is_told_by_the_next_run",),
    ),
    Mutant(
        bug=64,
        name="the-message-of-an-error-is-sent-with-what-it-quotes",
        file=f"{EXPORT}/events.py",
        find="event if self._settings.with_message else event.without_message()",
        replace="event",
        tests=(f"{OF_EVENTS}::test_a_failure_is_posted_without_what_the_error_quotes",),
    ),
    Mutant(
        bug=62,
        name="a-standby-knows-of-what-was-told-before-it-waited-only",
        file=f"{EXPORT}/events.py",
        find="        self._run = run\n        self._begin()\n",
        replace="        self._run = run\n",
        tests=(
            f"{OF_EVENTS}::test_a_standby_recovers_what_was_told_while_it_waited",
            f"{OF_EVENTS}::test_a_standby_that_waited_for_hours_does_not_stall_when_its_turn_comes",
        ),
    ),
    Mutant(
        bug=62,
        name="a-refused-run-ends-the-lineage-of-one-that-goes-on",
        file=f"{EXPORT}/lineage.py",
        find="        if self._run is not None and self._is_newest():\n",
        replace="        if True:\n",
        tests=("tests/unit/test_lineage.py::test_a_run_goes_on_beside_one_that_is_refused_and_one_that_it_fenced",),
    ),
)
