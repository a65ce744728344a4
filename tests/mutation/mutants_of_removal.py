"""Bugs planted where files are accepted as removed on purpose."""

from tests.mutation.mutant import Mutant

COORDINATOR = "src/penstock/commit/coordinator.py"
PARQUET = "src/penstock/sink/parquet/verification.py"
RECORDING = "src/penstock/commit/removal.py"
VERIFYING = "src/penstock/commit/verification.py"
REMOVAL = "src/penstock/run/removal.py"

OF_REMOVED = "tests/unit/test_removed_files.py"
OF_ACTS = "tests/unit/test_commit_removal.py"

MUTANTS_OF_REMOVAL = (
    Mutant(
        bug=33,
        name="removed-files-that-come-back-go-unseen",
        file=PARQUET,
        find="        if (self.account, one.file.name) not in self.ledger.removed:\n            return None\n",
        replace="        return None\n",
        tests=(f"{OF_REMOVED}::test_a_file_that_comes_back_in_place_of_another_one_is_reported",),
    ),
    Mutant(
        bug=33,
        name="what-is-missing-beside-a-changed-file-is-accepted",
        file=PARQUET,
        find="        if self.report.ok or self._wrong():",
        replace="        if self.report.ok:",
        tests=(f"{OF_REMOVED}::test_what_is_there_and_wrong_is_never_accepted",),
    ),
    Mutant(
        bug=33,
        name="what-was-removed-is-expected-all-the-same",
        file=VERIFYING,
        find="totals - removed.get(account, Totals())",
        replace="totals",
        tests=(f"{OF_REMOVED}::test_whole_batches_are_accepted_and_what_is_left_is_verified",),
    ),
    Mutant(
        bug=33,
        name="two-operators-accept-the-same-files",
        file=RECORDING,
        find="        if tail.summary.removed_at != after:",
        replace="        if False:",
        tests=(f"{OF_REMOVED}::test_two_operators_do_not_accept_the_same_files_twice",),
    ),
    Mutant(
        bug=33,
        name="some-files-of-forgotten-batches-are-accepted-unasked",
        file=REMOVAL,
        find="withheld = () if forgotten else tuple(_partly_forgotten(found))",
        replace="withheld = ()",
        tests=(f"{OF_REMOVED}::test_all_files_of_forgotten_batches_are_accepted_and_some_of_them_only_on_request",),
    ),
    Mutant(
        bug=33,
        name="an-account-that-is-not-mounted-was-removed",
        file=REMOVAL,
        find="        _require_own_places(plan, ledger, sink)\n",
        replace="",
        tests=(f"{OF_REMOVED}::test_a_place_that_is_not_there_is_not_taken_for_removed",),
    ),
    Mutant(
        bug=1,
        name="a-driver-behind-an-act-forgets-what-it-has-published",
        file=COORDINATOR,
        find="        known = self.summary  # the act knows only what the ledger says",
        replace="        known = found.summary",
        tests=(f"{OF_ACTS}::test_an_adoption_goes_behind_it_too_and_records_what_is_published",),
    ),
    Mutant(
        bug=1,
        name="a-fenced-driver-goes-on-behind-an-act",
        file=COORDINATOR,
        find="        if tail.generation > entry.generation:\n",
        replace="        if False:\n",
        tests=(f"{OF_ACTS}::test_an_act_at_the_position_of_an_older_run_fences_it",),
    ),
)
