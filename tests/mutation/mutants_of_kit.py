"""Bugs planted in what carries sinks that users write, and in the sink for any driver."""

from tests.mutation.mutant import Mutant

OWN = "src/penstock/sink/own/sink.py"
OF_OWN = "tests/conformance/test_own_sinks.py::TestLines"

MUTANTS_OF_KIT = (
    Mutant(
        bug=1,
        name="a-transaction-of-a-users-ends-well-whatever-happened",
        file=OWN,
        find="                manager.__exit__(*sys.exc_info())",
        replace="                manager.__exit__(None, None, None)",
        tests=(f"{OF_OWN}::test_a_fault_at_any_step[own.mark=error]",),
    ),
    Mutant(
        bug=11,
        name="what-any-database-keeps-is-not-tried",
        file="src/penstock/sink/dbapi/trial_rows.py",
        find='        return None if back == self._before + _totals(iter([batch])) else "it came back changed"',
        replace="        return None",
        tests=("tests/live/test_dbapi_trial.py::test_a_table_that_cuts_values_in_silence",),
    ),
    Mutant(
        bug=17,
        name="keys-that-a-database-takes-for-one-come-in-together",
        file="src/penstock/sink/dbapi/load.py",
        find="        if folded in seen or at - start == most:",
        replace="        if at - start == most:",
        tests=("tests/unit/test_dbapi_sink.py::test_keys_that_the_database_takes_for_one",),
    ),
)
