"""Bugs planted in what wakes people: alerts for nothing, alerts that stay away, consequences told in place of the cause."""

from tests.mutation.mutant import Mutant

ALERTS = "src/penstock/observe/alerts.py"
METRICS = "src/penstock/observe/metrics.py"
OF_ALERTS = "tests/live/test_alerts.py"
OF_METRICS = "tests/unit/test_metrics.py"

MUTANTS_OF_ALERTS = (
    Mutant(
        bug=62,
        name="a-driver-is-missed-that-has-nothing-to-do",
        file=ALERTS,
        find='expression=f"penstock_driver_running == 0 and on (pipeline) {_WAITS}"',
        replace='expression="penstock_driver_running == 0"',
        tests=(f"{OF_ALERTS}::test_no_driver_is_missed_where_nothing_waits",),
    ),
    Mutant(
        bug=62,
        name="a-pipeline-that-was-idle-stands-still-with-its-first-record",
        file=ALERTS,
        find='        holds="10m",\n        severity="critical",\n        summary="{{ $labels.pipeline }} has decided nothing',
        replace='        severity="critical",\n        summary="{{ $labels.pipeline }} has decided nothing',
        tests=(f"{OF_ALERTS}::test_a_pipeline_that_was_idle_gets_something_to_do",),
    ),
    Mutant(
        bug=62,
        name="a-run-that-failed-wakes-somebody-for-its-batch-too",
        file=ALERTS,
        find="unless=(*_CAUSES, *_ENDS[:2])",
        replace="unless=_CAUSES",
        tests=(f"{OF_ALERTS}::test_a_run_fails_for_want_of_a_person",),
    ),
    Mutant(
        bug=62,
        name="an-error-is-alerted-on-after-the-next-run-went-on",
        file=METRICS,
        find="and error.at_ms >= (status.last_written_at_ms or 0)",
        replace="",
        tests=(f"{OF_METRICS}::test_the_last_error_is_told_until_a_run_goes_on",),
    ),
    Mutant(
        bug=62,
        name="a-broker-that-is-away-is-not-told-from-a-store-of-files",
        file=METRICS,
        find="lambda status: len(status.lag_unknown),",
        replace="lambda status: len(status.lag_unknown) + len(status.waiting_unknown),",
        tests=(f"{OF_METRICS}::test_lag_is_in_records_and_seconds",),
    ),
)
