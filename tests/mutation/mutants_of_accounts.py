"""Bugs planted where an account of Parquet files says whose it is."""

from tests.mutation.mutant import Mutant

OF_OWNERSHIP = "tests/unit/test_parquet_ownership.py"

MUTANTS_OF_ACCOUNTS = (
    Mutant(
        bug=31,
        name="an-account-of-another-ledger-is-anybodys",
        file="src/penstock/sink/parquet/ownership.py",
        find="    if found.ledger_id != owner.ledger_id:",
        replace="    if False:",
        tests=(f"{OF_OWNERSHIP}::test_of_two_homes_that_start_at_the_same_moment_one_delivers",),
    ),
    Mutant(
        bug=31,
        name="an-account-with-files-and-without-an-owner-is-anybodys",
        file="src/penstock/sink/parquet/ownership.py",
        find="    if filled is not None:",
        replace="    if False:",
        tests=(f"{OF_OWNERSHIP}::test_files_in_an_account_whose_owner_is_noted_elsewhere_are_not_delivered_twice[by_a_link]",),
    ),
    Mutant(
        bug=31,
        name="only-some-files-of-an-unclaimed-account-are-looked-at",
        file="src/penstock/sink/parquet/ownership.py",
        find="(file.name for file in area.files() if",
        replace="(file.name for file in (file for _, file in zip(range(FILES_LOOKED_AT), area.files(), strict=False)) if",
        tests=(f"{OF_OWNERSHIP}::test_all_files_of_an_account_that_nobody_has_claimed_are_looked_at",),
    ),
    Mutant(
        bug=37,
        name="the-claim-of-a-filled-account-is-to-be-removed",
        file="src/penstock/sink/parquet/ownership.py",
        find="    if area.marker() is None and _filled_with(area) is None:",
        replace="    if True:",
        tests=(f"{OF_OWNERSHIP}::test_a_claim_whose_file_a_sweep_of_the_owner_removed_is_told_as_a_second_ledger",),
    ),
    Mutant(
        bug=31,
        name="an-account-within-that-of-another-sink-is-claimed",
        file="src/penstock/sink/parquet/ownership.py",
        find="    if outer is not None:",
        replace="    if False:",
        tests=(f"{OF_OWNERSHIP}::test_an_account_within_that_of_another_sink_is_refused",),
    ),
    Mutant(
        bug=31,
        name="an-owner-that-was-left-aside-stays-for-ever",
        file="src/penstock/sink/parquet/object/area.py",
        find="        if key == OWNER:\n            return self.claimed_by() is not None\n",
        replace="",
        tests=("tests/conformance/test_object_conformance.py::test_an_owner_that_was_left_aside_is_collected",),
    ),
    Mutant(
        bug=31,
        name="the-last-one-that-claims-an-account-has-it",
        file="src/penstock/sink/parquet/directory/owner.py",
        find="        place_or_leave(unplaced, target)",
        replace="        unplaced.replace(target)",
        tests=(f"{OF_OWNERSHIP}::test_of_many_that_claim_an_account_at_once_one_is_noted_whole",),
    ),
    Mutant(
        bug=31,
        name="staging-of-another-ledger-is-swept",
        file="src/penstock/sink/parquet/directory/area.py",
        find="            if is_anothers(self.claimed_by(), cut):\n                return []\n",
        replace="",
        tests=(f"{OF_OWNERSHIP}::test_another_ledger_sweeps_nothing_of_an_account",),
    ),
    Mutant(
        bug=31,
        name="uploads-of-another-ledger-are-ended",
        file="src/penstock/sink/parquet/object/area.py",
        find="        if is_anothers(self.claimed_by(), cut):\n            return []\n",
        replace="",
        tests=(f"{OF_OWNERSHIP}::test_another_ledger_sweeps_nothing_of_an_account",),
    ),
    Mutant(
        bug=37,
        name="a-new-name-delivers-into-the-place-of-another-sink",
        file="src/penstock/sink/parquet/ownership.py",
        find="    if found is None or (found.pipeline, found.sink, found.account) == (pipeline, sink, account):",
        replace="    if True:",
        tests=(f"{OF_OWNERSHIP}::test_where_the_ledger_is_lost_the_remedy_delivers_every_row_once",),
    ),
    Mutant(
        bug=37,
        name="files-of-another-sink-say-nothing",
        file="src/penstock/sink/parquet/continuity.py",
        find="    if other is not None:",
        replace="    if False:",
        tests=(f"{OF_OWNERSHIP}::test_a_place_that_another_sink_or_pipeline_filled_is_refused",),
    ),
    Mutant(
        bug=31,
        name="a-claim-that-was-swept-is-told-as-a-missing-directory",
        file="src/penstock/sink/parquet/directory/owner.py",
        find="        if not target.exists():\n",
        replace="        if True:\n",
        tests=(f"{OF_OWNERSHIP}::test_a_claim_whose_file_a_sweep_of_the_owner_removed_is_told_as_a_second_ledger",),
    ),
)
