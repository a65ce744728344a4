"""Bugs planted in the maintenance of Delta and Iceberg tables: compaction, vacuum and expiry."""

from tests.mutation.mutant import Mutant

COMPACTION = "src/penstock/sink/lake/compaction.py"
DELTA_LOG = "src/penstock/sink/delta/log.py"
REWRITING = "src/penstock/sink/delta/rewriting.py"
EXPIRY = "src/penstock/sink/iceberg/expiry.py"
VACUUM = "src/penstock/sink/delta/vacuum.py"

COMPACTING = "tests/unit/test_lake_maintenance.py"
FILES = f"{COMPACTING}::TestWhatBecomesOfFiles"
BESIDE = f"{COMPACTING}::TestBesideOthers"
TIERS = "tests/unit/test_lake_compaction_tiers.py"
CLEANING = "tests/unit/test_lake_cleaning.py"
DURABLE = "tests/unit/test_lake_durability.py"
EXPIRING = "tests/unit/test_lake_expiry.py"
SMALL = f"{FILES}::test_small_ones_become_large_ones_and_no_row_changes"

MUTANTS_OF_MAINTENANCE = (
    Mutant(
        bug=8,
        name="every-round-of-maintenance-writes-the-whole-table-again",
        file=COMPACTION,
        find="if place and file.size_bytes <= _TIER * smaller_bytes[place])",
        replace="if place)",
        tests=(
            f"{TIERS}::test_a_larger_file_waits_until_the_smaller_ones_are_worth_it[delta]",
            f"{TIERS}::test_a_row_is_written_again_as_often_as_there_are_tiers",
        ),
    ),
    Mutant(
        bug=8,
        name="a-compaction-is-committed-on-a-newer-version-than-was-read",
        file=DELTA_LOG,
        find='self.place.add_to_log(f"{self.next_version:020d}.json", rewriting.entry())',
        replace='self.place.add_to_log(f"{DeltaTable(self.place.uri).version() + 1:020d}.json", rewriting.entry())',
        tests=(f"{BESIDE}::test_a_commit_of_others_in_between_is_no_failure[delta]",),
    ),
    Mutant(
        bug=12,
        name="files-of-a-compaction-that-may-still-be-made-are-never-asked-for-again",
        file=COMPACTION,
        find="if of is not None and of[0] < snapshot.next_version]",
        replace="if of is not None]",
        tests=(f"{BESIDE}::test_what_came_to_nothing_is_removed_by_the_run_that_saw_it_standing[delta]",),
    ),
    Mutant(
        bug=12,
        name="files-of-a-compaction-are-named-after-a-version-that-is-anothers",
        file=COMPACTION,
        find="version = snapshot.next_version\n",
        replace="version = snapshot.version\n",
        tests=(
            f"{BESIDE}::test_a_compaction_that_may_still_be_made_keeps_its_files[delta]",
            f"{BESIDE}::test_a_compaction_that_may_still_be_made_keeps_its_files[iceberg]",
        ),
    ),
    Mutant(
        bug=12,
        name="a-merge-takes-files-of-a-compaction-for-its-leftovers",
        file=COMPACTION,
        find="        attempt = replace(try_after(self.table.publication), generation=NO_GENERATION)\n",
        replace="        attempt = try_after(self.table.publication)\n",
        tests=(f"{SMALL}[delta-upsert]",),
    ),
    Mutant(
        bug=12,
        name="a-compaction-that-landed-and-raised-is-not-looked-for",
        file=COMPACTION,
        find="            if not self._has_landed(version, attempt.nonce):\n                raise  # what",
        replace="            raise  # what",
        tests=(f"{COMPACTING}::TestFailures::test_a_commit_that_landed_and_raised_is_found[delta-lakecompaction.commit=lost]",),
    ),
    Mutant(
        bug=13,
        name="what-a-killed-compaction-left-stays-for-ever",
        file="src/penstock/sink/lake/maintenance.py",
        find="            yield lambda table: self._compaction(table).collect()\n",
        replace="            pass\n",
        tests=(f"{COMPACTING}::TestFailures::test_killed_at_each_step[delta-lakecompaction.commit=kill-append]",),
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
        file=REWRITING,
        find='            "dataChange": False,\n            "stats"',
        replace='            "dataChange": True,\n            "stats"',
        tests=(f"{FILES}::test_who_follows_the_changes_of_the_table_passes_over_it[delta]",),
    ),
    Mutant(
        bug=17,
        name="who-optimizes-a-delta-table-does-not-see-that-its-files-were-compacted",
        file=REWRITING,
        find='        yield {"metaData": self.metadata}\n',
        replace="",
        tests=(f"{BESIDE}::test_what_the_library_began_before_is_refused[optimize-delta]",),
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
        find="    return order is not None and order < before\n",
        replace="    return order is not None\n",
        tests=(f"{CLEANING}::test_what_a_newer_driver_moved_and_did_not_commit_stays[delta-CleanedRig]",),
    ),
    Mutant(
        bug=27,
        name="a-vacuum-takes-files-of-a-compaction-that-an-older-driver-is-about-to-commit",
        file=VACUUM,
        find="        return becomes <= version\n",
        replace="        return True\n",
        tests=(
            f"{CLEANING}::TestVacuum::test_files_stay_that_an_older_driver_is_about_to_commit",
            f"{CLEANING}::TestVacuum::test_what_an_older_driver_compacted_within_the_retention_can_be_read",
        ),
    ),
    Mutant(
        bug=12,
        name="a-vacuum-removes-files-whose-going-is-not-durable",
        file=VACUUM,
        find="            table.sync(newest.version)  # else",
        replace="            pass  # else",
        tests=(f"{DURABLE}::TestFlushed::test_nothing_is_removed_before_the_commits_are_flushed_that_took_it_out",),
    ),
    Mutant(
        bug=12,
        name="a-compaction-that-is-not-durable-is-built-upon",
        file=COMPACTION,
        find="        self.table.sync(version)\n",
        replace="",
        tests=(f"{DURABLE}::TestFlushed::test_one_that_could_not_be_flushed_ends_the_run",),
    ),
    Mutant(
        bug=12,
        name="a-flush-that-failed-is-tried-again",
        file="src/penstock/sink/lake/sink.py",
        find="            self._undurable = failure\n",
        replace="",
        tests=(f"{DURABLE}::TestFlushed::test_one_that_could_not_be_flushed_ends_the_run",),
    ),
    Mutant(
        bug=12,
        name="files-are-removed-of-a-compaction-of-which-the-table-tells-no-more",
        file=COMPACTION,
        find="snapshot.has_rewritten(version, nonce) is False:",
        replace="not snapshot.has_rewritten(version, nonce):",
        tests=(f"{DURABLE}::test_files_stay_that_only_a_tagged_snapshot_has_though_that_of_their_compaction_has_left",),
    ),
    Mutant(
        bug=43,
        name="a-compaction-brings-back-values-that-readers-found-no-more",
        file="src/penstock/sink/lake/reader.py",
        find="        return is_own and (file.field_ids is None or has_numbers(there, file.field_ids))\n",
        replace="        return is_own\n",
        tests=(f"{FILES}::test_those_whose_values_readers_find_no_more_stay_apart[iceberg]",),
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
        name="a-vacuum-takes-files-of-a-version-whose-entry-has-left-the-log",
        file=VACUUM,
        find="        return None if newest.commit_info(low) is None else low\n",
        replace="        return min(low + 1, newest.version) if newest.commit_info(low) is None else low\n",
        tests=(f"{CLEANING}::TestVacuum::test_what_was_newest_before_a_long_pause_stays_as_long_as_other_versions",),
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
        find="    yield [location for location in data if location not in live]\n",
        replace="    yield list(data)\n",
        tests=(f"{EXPIRING}::test_files_stay_that_another_manifest_names_by_now",),
    ),
    Mutant(
        bug=12,
        name="an-expiry-asks-the-newest-snapshot-alone-what-must-stay",
        file=EXPIRY,
        find=" if version.snapshot_id not in passed_over]\n",
        replace=" if version.snapshot_id == table.metadata.current_snapshot_id]\n",
        tests=(f"{EXPIRING}::test_what_a_tag_or_a_branch_names_stays_and_can_be_read",),
    ),
    Mutant(
        bug=12,
        name="an-expiry-removes-files-that-snapshots-share-with-one-of-a-branch-that-is-gone",
        file=EXPIRY,
        find="    if any(snapshot_id not in main for snapshot_id in lineage.left):",
        replace="    if False:",
        tests=(f"{EXPIRING}::test_files_stay_that_retained_snapshots_share_with_one_of_a_branch_that_is_gone",),
    ),
    Mutant(
        bug=13,
        name="what-a-killed-expiry-left-stays-for-ever",
        file=EXPIRY,
        find="            self._remove_files_of(key, _UNKNOWN)\n",
        replace="            pass\n",
        tests=(f"{EXPIRING}::test_an_expiry_that_ends_early_is_finished_by_a_later_one[kill-remove]",),
    ),
    Mutant(
        bug=27,
        name="an-expiry-takes-what-was-the-newest-when-the-retention-began",
        file=EXPIRY,
        find="        staying |= {version.snapshot_id for version in islice(_older(_ancestors(table), since_ms), 1)}\n",
        replace="",
        tests=(f"{EXPIRING}::test_the_snapshot_stays_that_was_the_newest_one_when_the_retention_began",),
    ),
)
