"""Bugs planted in the maintenance of Delta and Iceberg tables: compaction, vacuum and expiry."""

from tests.mutation.mutant import Mutant

COMPACTION = "src/penstock/sink/lake/compaction.py"
DELTA_LOG = "src/penstock/sink/delta/log.py"
EXPIRY = "src/penstock/sink/iceberg/expiry.py"
VACUUM = "src/penstock/sink/delta/vacuum.py"

COMPACTING = "tests/unit/test_lake_maintenance.py"
FILES = f"{COMPACTING}::TestWhatBecomesOfFiles"
BESIDE = f"{COMPACTING}::TestBesideOthers"
CLEANING = "tests/unit/test_lake_cleaning.py"
EXPIRING = f"{CLEANING}::TestExpiry"
SMALL = f"{FILES}::test_small_ones_become_large_ones_and_no_row_changes"

MUTANTS_OF_MAINTENANCE = (
    Mutant(
        bug=8,
        name="a-compaction-is-committed-on-a-newer-version-than-was-read",
        file=COMPACTION,
        find="            is_exclusive=True,\n",
        replace="",
        tests=(f"{BESIDE}::test_a_commit_of_others_in_between_is_no_failure[delta]",),
    ),
    Mutant(
        bug=12,
        name="files-of-a-compaction-are-removed-that-may-still-be-committed",
        file=COMPACTION,
        find="        return landed is False  # None",
        replace="        return not landed  # None",
        tests=(f"{BESIDE}::test_a_compaction_that_may_still_be_made_keeps_its_files[delta]",),
    ),
    Mutant(
        bug=12,
        name="files-of-a-compaction-are-named-after-a-version-that-is-anothers",
        file=COMPACTION,
        find="try_after(self.table.publication), snapshot.next_version",
        replace="try_after(self.table.publication), snapshot.version",
        tests=(f"{SMALL}[delta-append]", f"{SMALL}[iceberg-append]"),
    ),
    Mutant(
        bug=12,
        name="a-merge-takes-files-of-a-compaction-for-its-leftovers",
        file="src/penstock/sink/lake/merge.py",
        find="        if compaction_in(name) is not None:  # made",
        replace="        if False:  # made",
        tests=(f"{SMALL}[delta-upsert]",),
    ),
    Mutant(
        bug=12,
        name="a-compaction-that-landed-and-raised-is-not-looked-for",
        file=COMPACTION,
        find="            if not self._has_landed(version, attempt.nonce):\n                raise  # what",
        replace="            raise  # what",
        tests=(f"{COMPACTING}::TestFailures::test_a_commit_that_landed_and_raised_is_found[delta-lakeupkeep.compact=lost@2]",),
    ),
    Mutant(
        bug=13,
        name="what-a-killed-compaction-left-stays-for-ever",
        file="src/penstock/sink/lake/maintenance.py",
        find="            yield lambda table: self._compaction(table).collect()\n",
        replace="            pass\n",
        tests=(f"{COMPACTING}::TestFailures::test_killed_at_each_step[delta-lakeupkeep.compact=kill@2-append]",),
    ),
    Mutant(
        bug=17,
        name="a-compaction-commits-other-rows-than-it-read",
        file=COMPACTION,
        find="        if (before.rows, before.digest) != (after.rows, after.digest):\n",
        replace="        if False:\n",
        tests=(f"{FILES}::test_rows_that_would_be_written_as_others_are_not_committed[delta]",),
    ),
    Mutant(
        bug=33,
        name="a-compaction-merges-files-whose-rows-are-hashed-in-another-order",
        file=COMPACTION,
        find="reader.finds_all(file) and reader.hashes_alike(file) and",
        replace="reader.finds_all(file) and",
        tests=(f"{FILES}::test_those_whose_columns_stood_in_another_order_stay_apart[delta]",),
    ),
    Mutant(
        bug=31,
        name="a-table-of-another-ledger-is-maintained",
        file="src/penstock/sink/lake/maintained_table.py",
        find="        return marker is not None and marker.ledger_id in {None, self.publication.ledger_id}\n",
        replace="        return marker is not None\n",
        tests=(f"{FILES}::test_those_of_another_ledger_are_left_alone[delta]",),
    ),
    Mutant(
        bug=19,
        name="who-follows-a-delta-table-reads-compacted-rows-twice",
        file=DELTA_LOG,
        find="data_change=not change.is_rewrite) for file in change.added]",
        replace="data_change=True) for file in change.added]",
        tests=(f"{FILES}::test_who_follows_the_changes_of_the_table_passes_over_it[delta]",),
    ),
    Mutant(
        bug=19,
        name="who-follows-an-iceberg-table-takes-a-compaction-for-an-overwrite",
        file="src/penstock/sink/iceberg/log.py",
        find="            transaction._updates = as_rewrite(transaction._updates)\n",
        replace="            pass\n",
        tests=(f"{FILES}::test_who_follows_the_changes_of_the_table_passes_over_it[iceberg]",),
    ),
    Mutant(
        bug=27,
        name="a-vacuum-takes-files-that-a-newer-driver-is-about-to-commit",
        file=VACUUM,
        find="            if order is None or order >= before or file.name in there:\n",
        replace="            if order is None or file.name in there:\n",
        tests=(f"{CLEANING}::test_what_a_newer_driver_moved_and_did_not_commit_stays[delta]",),
    ),
    Mutant(
        bug=27,
        name="a-vacuum-takes-files-of-versions-within-the-retention",
        file=VACUUM,
        find="for snapshot in (self.log.at(oldest), newest) for",
        replace="for snapshot in (newest,) for",
        tests=(f"{CLEANING}::TestVacuum::test_every_version_within_the_retention_can_be_read",),
    ),
    Mutant(
        bug=27,
        name="a-vacuum-asks-no-commit-for-its-time",
        file=VACUUM,
        find="    return isinstance(at_ms, int) and at_ms <= since_ms\n",
        replace="    return True\n",
        tests=(f"{CLEANING}::test_nothing_is_removed_before_its_time[delta]",),
    ),
    Mutant(
        bug=12,
        name="an-expiry-takes-snapshots-that-a-tag-names",
        file=EXPIRY,
        find="        staying = {ref.snapshot_id for ref in table.metadata.refs.values()}\n",
        replace="        staying = set[int]()\n",
        tests=(f"{EXPIRING}::test_what_a_tag_or_a_branch_names_stays_and_can_be_read",),
    ),
    Mutant(
        bug=7,
        name="an-expiry-takes-a-tag-that-came-after-its-look",
        file="src/penstock/sink/iceberg/table_updates.py",
        find="*([_NoOtherRefs(refs=refs)] if is_local else ())",
        replace="*()",
        tests=(f"{EXPIRING}::test_a_tag_that_comes_in_between_is_not_lost",),
    ),
    Mutant(
        bug=12,
        name="an-expiry-removes-files-that-another-manifest-names-by-now",
        file=EXPIRY,
        find="        yield from (location for location in data if location not in live)\n",
        replace="        yield from data\n",
        tests=(f"{EXPIRING}::test_files_stay_that_another_manifest_names_by_now",),
    ),
    Mutant(
        bug=12,
        name="an-expiry-asks-the-newest-snapshot-alone-what-must-stay",
        file=EXPIRY,
        find=" if version.snapshot_id not in of_main]\n",
        replace=" if version.snapshot_id == table.metadata.current_snapshot_id]\n",
        tests=(f"{EXPIRING}::test_what_a_tag_or_a_branch_names_stays_and_can_be_read",),
    ),
)
