"""Bugs planted in the sink of Iceberg tables. What it shares with Delta is in `mutants_of_delta`."""

from tests.mutation.mutant import Mutant

LOG = "src/penstock/sink/iceberg/log.py"
DATA_FILE = "src/penstock/sink/iceberg/data_file.py"

SUITE = "tests/conformance/test_iceberg_conformance.py::TestIceberg"
UNIT = "tests/unit/test_iceberg_sink.py"
MARKER = f"{UNIT}::TestTheMarkerIsComparedAndSet"
FILES = f"{UNIT}::TestFiles"
STARTS = f"{UNIT}::TestStarts"
CHANGES = "tests/unit/test_iceberg_changes.py"
KEYS = f"{CHANGES}::TestWhatAKeyMeans"
BESIDE = f"{CHANGES}::TestBesideOtherWriters"
LAKE_CHANGES = "tests/unit/test_lake_changes.py"
LAKE_KEYS = f"{LAKE_CHANGES}::TestWhatAKeyMeans"
LAKE_BESIDE = f"{LAKE_CHANGES}::TestBesideOtherWriters"
GROWN = "tests/attack/test_grown_lakes.py"
TRANSFORMS = "src/penstock/sink/parquet/transforms.py"
OF_LIBRARY = "tests/unit/test_partition_transforms.py::test_values_are_those_of_the_library"
SAID = "tests/unit/test_iceberg_partitions.py::TestWhatManifestsSay"
SKIPPED = "tests/unit/test_iceberg_partitions.py::TestFilesAreSkipped"
BRANCHES = "tests/unit/test_iceberg_branches.py"
OTHERS = "tests/unit/test_iceberg_partitions.py::TestTablesOfOthers"
REFUSED = "tests/attack/test_refused_lakes.py"

MUTANTS_OF_ICEBERG = (
    Mutant(
        bug=35,
        name="lake-clears-a-table-that-was-replaced-once-by-an-empty-batch",
        file="src/penstock/sink/lake/sink.py",
        find="if self._has_staged or self._mode.write != REPLACE:",
        replace="if self._has_staged:",
        tests=(f"{GROWN}::test_an_empty_batch_clears_no_table_that_is_replaced_no_more[delta-append]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-takes-a-column-for-the-one-that-had-its-name",
        file="src/penstock/sink/parquet/row_file.py",
        find="if field_ids is None or not is_numbered(there):",
        replace="if True:",
        tests=(f"{REFUSED}::test_a_column_that_took_the_name_of_a_renamed_one_gets_none_of_its_values[us]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-verifies-values-that-readers-find-no-more",
        file="src/penstock/sink/parquet/table.py",
        find="        require_found(parquet.schema_arrow, field_ids)\n",
        replace="        pass\n",
        tests=(f"{REFUSED}::test_verify_sees_that_readers_find_values_no_more[append]",),
    ),
    Mutant(
        bug=35,
        name="lake-partitions-rewritten-files-by-the-settings",
        file="src/penstock/sink/lake/table_writer.py",
        find="field_ids=snapshot.field_ids, partition_by=snapshot.partition_by)",
        replace="field_ids=snapshot.field_ids)",
        tests=(f"{GROWN}::test_settings_that_changed_partition_no_decided_rows[delta]",),
    ),
    Mutant(
        bug=34,
        name="lake-takes-rows-that-stay-for-ones-that-are-hashed-as-before",
        file="src/penstock/sink/lake/merge.py",
        find="if not self.decided.reader.hashes_alike(file)]",
        replace="if False]",
        tests=(f"{REFUSED}::test_columns_may_change_places[delta-upsert]",),
    ),
    Mutant(
        bug=35,
        name="iceberg-overwrites-partitions-beside-files-of-none-of-them",
        file="src/penstock/sink/iceberg/partitions.py",
        find="    return bool(there - {frozenset(_made_of(table.spec()))})\n",
        replace="    return False\n",
        tests=(f"{BESIDE}::test_partitions_are_not_overwritten_beside_files_from_before_they_were_made",),
    ),
    Mutant(
        bug=43,
        name="iceberg-compares-dates-by-a-calendar-that-ends-before-sparks",
        file=LOG,
        find="    return value.value if pa.types.is_date32(value.type) else value.as_py()\n",
        replace="    return value.as_py().toordinal() - 719163 if pa.types.is_date32(value.type) else value.as_py()\n",
        tests=(f"{LAKE_KEYS}::test_dates_beyond_the_calendar_of_python_are_keys[iceberg]",),
    ),
    Mutant(
        bug=7,
        name="iceberg-commits-as-the-library-does-which-repeats-by-itself",
        file=LOG,
        find="        self.table._do_commit(updates=transaction._updates, requirements=required)\n",
        replace="        transaction.commit_transaction()\n",
        tests=(f"{MARKER}::test_a_commit_on_a_snapshot_from_before_another_one_fails",),
    ),
    Mutant(
        bug=9,
        name="iceberg-commits-files-without-the-marker",
        file=LOG,
        find="            transaction.set_properties(noted)\n",
        replace="            pass\n",
        tests=(f"{SUITE}::test_publishing_again_changes_nothing[plain]",),
    ),
    Mutant(
        bug=9,
        name="iceberg-looks-for-its-marker-in-the-newest-snapshot-only",
        file=LOG,
        find="        text = self.table.properties.get(key)\n",
        replace="        newest = self.table.current_snapshot()\n"
        "        text = None if newest is None else newest.summary.get(key)\n",
        tests=(f"{MARKER}::test_a_marker_outlives_its_snapshots",),
    ),
    Mutant(
        bug=31,
        name="iceberg-keeps-no-identity-in-the-property",
        file="src/penstock/sink/iceberg/marker_notes.py",
        find='        ledger_id=None if noted["ledger_id"] is None else LedgerId(noted["ledger_id"]),\n',
        replace="        ledger_id=None,\n",
        tests=(f"{MARKER}::test_a_marker_outlives_its_snapshots",),
    ),
    Mutant(
        bug=43,
        name="iceberg-writes-files-without-the-numbers-of-its-columns",
        file="src/penstock/sink/parquet/stager.py",
        find="return schema if ids is None else with_field_ids(schema, ids)",
        replace="return schema",
        tests=(f"{FILES}::test_files_have_the_numbers_of_the_table_and_bounds_that_hold",),
    ),
    Mutant(
        bug=43,
        name="iceberg-commits-files-whose-columns-have-other-numbers",
        file="src/penstock/sink/lake/staged_files.py",
        find="        self._require_same_numbers(snapshot)\n",
        replace="",
        tests=(f"{FILES}::test_a_table_that_numbers_its_columns_anew_gets_no_file_of_before",),
    ),
    Mutant(
        bug=43,
        name="iceberg-takes-the-lower-bound-for-the-upper-one",
        file=DATA_FILE,
        find='upper_bounds=_bounds(found["maxValues"], schema)',
        replace='upper_bounds=_bounds(found["minValues"], schema)',
        tests=(f"{FILES}::test_files_have_the_numbers_of_the_table_and_bounds_that_hold",),
    ),
    Mutant(
        bug=43,
        name="iceberg-fills-a-table-with-any-partitions",
        file=LOG,
        find="    for field in table.spec().fields:\n",
        replace="    for field in ():\n",
        tests=(f"{STARTS}::test_tables_that_are_refused[void]",),
    ),
    Mutant(
        bug=19,
        name="a-catalog-names-what-is-not-on-the-disk",
        file="src/penstock/sink/iceberg/durable_io.py",
        find="            os.fsync(self._file.fileno())\n        sync_directory(self._path.parent)\n",
        replace="            pass\n",
        tests=(f"{MARKER}::test_what_the_catalog_names_is_durable",),
    ),
    Mutant(
        bug=1,
        name="iceberg-leaves-rows-beside-those-that-replace-them",
        file=LOG,
        find="update.overwrite() if change.removed else update.merge_append()",
        replace="update.merge_append()",
        tests=(f"{LAKE_KEYS}::test_of_rows_with_one_key_the_last_one_counts[iceberg-OverlappingRig]",),
    ),
    Mutant(
        bug=1,
        name="iceberg-takes-a-file-whose-least-key-is-the-batchs-greatest-for-one-without-it",
        file=LOG,
        find="from_bytes(kind, low) > _stored",
        replace="from_bytes(kind, low) >= _stored",
        tests=(f"{LAKE_KEYS}::test_of_rows_with_one_key_the_last_one_counts[iceberg-OverlappingRig]",),
    ),
    Mutant(
        bug=1,
        name="iceberg-compares-partition-values-by-another-text-than-they-are-written-in",
        file="src/penstock/sink/parquet/layout.py",
        find="{*values.cast(pa.string()).to_pylist()}",
        replace="{*map(repr, values.to_pylist())}",
        tests=(f"{KEYS}::test_a_file_of_a_partition_without_the_keys_is_not_read[day]",),
    ),
    Mutant(
        bug=1,
        name="iceberg-asks-files-of-an-older-partitioning-for-a-value-that-they-lack",
        file=LOG,
        find=" for name, wanted in partitions.items() if name in values)",
        replace=" for name, wanted in partitions.items())",
        tests=(f"{BESIDE}::test_files_from_before_the_table_was_partitioned_are_rewritten_too",),
    ),
    Mutant(
        bug=7,
        name="iceberg-moves-the-marker-without-a-snapshot",
        file=LOG,
        find="        required = (*transaction._requirements, same_table, *requirements)\n",
        replace="        required = (same_table, *requirements)\n",
        tests=(f"{KEYS}::test_a_batch_that_changes_nothing_moves_the_marker[OverlappingIfAbsentRig]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-reads-a-column-that-was-removed-and-added-again-by-its-name",
        file=LOG,
        find="    if mode.write != APPEND and len(",
        replace="    if False and len(",
        tests=(f"{BESIDE}::test_a_table_that_lost_a_column_is_only_appended_to[OverlappingRig]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-rewrites-files-without-the-numbers-of-the-columns",
        file="src/penstock/sink/lake/table_writer.py",
        find="replace(self.stager.settings, field_ids=snapshot.field_ids, ",
        replace="replace(self.stager.settings, field_ids=None, ",
        tests=(f"{LAKE_KEYS}::test_of_rows_with_one_key_the_last_one_counts[iceberg-OverlappingRig]",),
    ),
    Mutant(
        bug=33,
        name="iceberg-counts-no-rows-in-its-marker",
        file="src/penstock/sink/iceberg/marker_notes.py",
        find="        **({} if content is None else {",
        replace="        **({} if True else {",
        tests=(f"{BESIDE}::test_what_the_marker_counts_outlives_snapshots[OverlappingRig]",),
    ),
    Mutant(
        bug=34,
        name="verify-of-a-table-refuses-files-with-the-partition-columns-in-them",
        file="src/penstock/sink/parquet/table.py",
        find="if column not in rows.names]",
        replace="if column not in rows.names or column in values]",
        tests=(f"{LAKE_BESIDE}::test_rows_that_came_between_the_look_and_the_commit_are_replaced[iceberg-OverwriteRig]",),
    ),
    Mutant(
        bug=19,
        name="iceberg-puts-metadata-whose-writing-failed",
        file="src/penstock/sink/iceberg/store_io.py",
        find="        if kind is None:\n",
        replace="        if True:\n",
        tests=("tests/live/test_iceberg_metadata.py::test_what_was_not_written_whole_is_not_put",),
    ),
    Mutant(
        bug=19,
        name="a-catalog-answers-commits-that-a-power-cut-takes-back",
        file="src/penstock/sink/iceberg/catalog.py",
        find="    cursor.execute(statement)\n",
        replace="",
        tests=("tests/live/test_iceberg_catalog.py::test_a_commit_of_a_catalog_outlives_a_power_cut",),
    ),
    Mutant(
        bug=43,
        name="iceberg-counts-hours-before-1970-towards-it",
        file=TRANSFORMS,
        find='    return _whole(column).view(f"M8[{there}]").astype(f"M8[{unit}]").astype(np.int64)\n',
        replace='    return abs(_whole(column)).view(f"M8[{there}]").astype(f"M8[{unit}]").astype(np.int64)\n',
        tests=(f"{OF_LIBRARY}[days(c)-timestamptz]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-hashes-the-end-of-a-text-as-a-whole-word",
        file=TRANSFORMS,
        find="    for size in (1, 2, 3):\n",
        replace="    for size in (1, 2):\n",
        tests=(f"{OF_LIBRARY}[bucket(16, c)-string]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-puts-NULL-into-the-bucket-of-zero",
        file=TRANSFORMS,
        find="    return pa.array(values, mask=np.asarray(column.is_null()))\n",
        replace="    return pa.array(values)\n",
        tests=(f"{OF_LIBRARY}[bucket(16, c)-long]",),
    ),
    Mutant(
        bug=30,
        name="iceberg-takes-a-hidden-value-for-a-directory",
        file="src/penstock/sink/parquet/layout.py",
        find="        if size_bytes > NAME_LIMIT_BYTES and self.term is None:\n",
        replace="        if size_bytes > NAME_LIMIT_BYTES:\n",
        tests=(f"{SAID}::test_values_are_those_of_the_library[TransformedRig-years]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-leaves-a-hidden-partitions-column-out-of-the-files",
        file="src/penstock/sink/parquet/splitting.py",
        find="for column in self._columns if column.term is None}",
        replace="for column in self._columns}",
        tests=(f"{SAID}::test_values_are_those_of_the_library[TransformedRig-all]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-knows-a-partitioning-by-the-names-of-its-fields",
        file="src/penstock/sink/iceberg/partitions.py",
        find="    return ((field.source_id, str(field.transform)) for field in spec.fields)\n",
        replace="    return ((0, field.name) for field in spec.fields)\n",
        tests=(f"{OTHERS}::test_partitions_are_not_overwritten_beside_files_of_other_buckets[TransformedOverwriteRig]",),
    ),
    Mutant(
        bug=35,
        name="iceberg-takes-buckets-of-another-number-for-those-of-the-settings",
        file="src/penstock/sink/iceberg/partitions.py",
        find='        return PartitionTerm(function="bucket", number=transform.num_buckets, column=column)\n',
        replace='        return PartitionTerm(function="bucket", number=4, column=column)\n',
        tests=(f"{OTHERS}::test_a_decided_batch_waits_until_the_partitions_are_what_they_were[TransformedRig]",),
    ),
    Mutant(
        bug=1,
        name="iceberg-looks-for-keys-in-the-buckets-of-other-keys",
        file="src/penstock/sink/lake/batch_keys.py",
        find="pc.unique(each.values_of(self.table)) for each",
        replace="pc.unique(each.values_of(self.table))[:1] for each",
        tests=(f"{SKIPPED}::test_keys_are_found_in_every_bucket[TransformedUpsertRig]",),
    ),
    Mutant(
        bug=7,
        name="iceberg-writes-main-for-a-branch",
        file=LOG,
        find="snapshot_properties=noted, branch=self.log.branch)",
        replace="snapshot_properties=noted)",
        tests=(f"{BRANCHES}::test_main_stays_as_it_is_until_it_is_brought_forward[BranchRig]",),
    ),
    Mutant(
        bug=7,
        name="iceberg-reads-main-for-a-branch",
        file="src/penstock/sink/iceberg/branch.py",
        find="    return table.snapshot_by_name(branch) or table.current_snapshot()\n",
        replace="    return table.current_snapshot()\n",
        tests=(f"{BRANCHES}::test_main_stays_as_it_is_until_it_is_brought_forward[OverlappingBranchRig]",),
    ),
    Mutant(
        bug=2,
        name="iceberg-goes-on-in-a-branch-that-lacks-what-was-delivered",
        file="src/penstock/sink/iceberg/branch.py",
        find='    if noted["position"] not in _positions(table, branch, key):\n',
        replace="    if False:\n",
        tests=(f"{BRANCHES}::test_a_branch_that_was_removed_with_its_rows_is_not_begun_again[BranchRig]",),
    ),
    Mutant(
        bug=8,
        name="iceberg-commits-on-a-branch-under-the-number-of-a-commit-on-main",
        file=LOG,
        find="        return () if self.log.branch == MAIN else same_refs(self.table.metadata, is_local=False)\n",
        replace="        return ()\n",
        tests=(f"{BRANCHES}::test_a_commit_on_main_in_between_is_no_loss[BranchRig]",),
    ),
    Mutant(
        bug=43,
        name="iceberg-takes-the-text-that-stands-for-NULL-for-NULL",
        file="src/penstock/sink/parquet/layout.py",
        find=" or text == NULL:\n",
        replace=":\n",
        tests=(f"{SAID}::test_values_are_those_of_the_library[TransformedRig-years]",),
    ),
)
