"""Bugs planted in accounts and ledgers on object stores and HDFS."""

from tests.mutation.mutant import Mutant

UPLOAD = "src/penstock/sink/parquet/object/upload.py"
AREA = "src/penstock/sink/parquet/object/area.py"
GCS = "src/penstock/blob/gcs.py"
HDFS = "src/penstock/blob/hdfs.py"
S3 = "src/penstock/blob/s3.py"
COMBINING = "src/penstock/sink/parquet/combining.py"
SPOOL = "src/penstock/sink/spool/root.py"

OF_OBJECTS = "tests/conformance/test_object_conformance.py::TestObjects"
OF_PUBLISHING = "tests/conformance/test_object_publishing.py"
OF_SWEEPING = "tests/conformance/test_object_sweep.py"
OF_SPOOL = "tests/conformance/test_spool_places.py"
OF_OPTIONS = "tests/unit/test_blob_options.py"
OF_COMBINING = "tests/unit/test_parquet_combining.py"
OF_STORES = "tests/conformance/test_blob_conformance.py::TestBlob"

MUTANTS_OF_STORES = (
    Mutant(
        bug=17,
        name="a-small-file-is-left-out-when-files-are-combined",
        file=COMBINING,
        find="    for piece in pieces:\n        rows =",
        replace="    for piece in pieces[1:]:\n        rows =",
        tests=(f"{OF_COMBINING}::test_the_file_is_as_a_task_writes_it",),
    ),
    Mutant(
        bug=17,
        name="small-files-stay-beside-the-one-that-has-their-rows",
        file="src/penstock/sink/parquet/stager.py",
        find="*(piece for piece in pieces if piece.name not in gone)",
        replace="*pieces",
        tests=(f"{OF_COMBINING}::test_the_name_is_of_an_attempt_of_its_own",),
    ),
    Mutant(
        bug=17,
        name="digests-of-combined-files-are-not-added",
        file=COMBINING,
        find="digest=piece.totals.digest,",
        replace="digest=pieces[0].totals.digest,",
        tests=(f"{OF_COMBINING}::test_the_digest_is_that_of_the_rows_that_the_file_holds",),
    ),
    Mutant(
        bug=17,
        name="combined-files-may-hold-other-rows",
        file="src/penstock/stage/combining.py",
        find="    if then != now:",
        replace="    if False:",
        tests=(f"{OF_COMBINING}::test_what_would_lose_rows_is_not_decided",),
    ),
    Mutant(
        bug=17,
        name="small-files-of-several-partitions-become-one",
        file=COMBINING,
        find='piece.name.rpartition("/")[0]',
        replace='""',
        tests=(f"{OF_COMBINING}::test_random_parts_keep_every_row_in_its_place",),
    ),
    Mutant(
        bug=61,
        name="every-thread-makes-a-client-of-the-store",
        file="src/penstock/blob/client.py",
        find="    with _making.setdefault(process, Lock()):\n",
        replace="    with Lock():\n",
        tests=tuple(f"{OF_OPTIONS}::test_threads_that_begin_at_once_make_one_client[{kind}]" for kind in ("s3", "hdfs")),
    ),
    Mutant(
        bug=19,
        name="a-new-spool-may-be-gone-after-a-power-cut",
        file=SPOOL,
        find="        create_durably(Path(self.directory), make_private_directory)\n",
        replace="        make_private_directory(Path(self.directory))\n",
        tests=("tests/unit/test_spool.py::test_a_new_place_is_on_the_disk_with_the_directories_above_it",),
    ),
    Mutant(
        bug=10,
        name="a-table-in-a-store-is-refused-for-a-lost-answer",
        file="src/penstock/sink/delta/place.py",
        find="        if put[1] or self._store.head(key) is None:",
        replace="        if put != [True, False]:",
        tests=("tests/conformance/test_blob_stores_that_lie.py::test_an_honest_store_passes_whose_client_meets_its_own_write",),
    ),
    Mutant(
        bug=4,
        name="a-completion-is-believed-without-a-look",
        file=AREA,
        find="""\
        if self._is_shown(piece):  # I12
            return True
        if self._is_staged(piece):
            raise""",
        replace="""\
        return True
        if self._is_staged(piece):
            raise""",
        tests=(f"{OF_PUBLISHING}::test_a_lost_upload_is_told_and_marks_nothing[False-s3]",),
    ),
    Mutant(
        bug=5,
        name="a-small-file-is-put-by-a-driver-that-stood-still",
        file=AREA,
        find="            if _clock_s() - self._looked_s > LOOKED_FOR_S:\n                self._require_same_mark(piece)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_driver_that_stood_still_puts_nothing_that_maintenance_removed[s3]",),
    ),
    Mutant(
        bug=10,
        name="a-client-repeats-an-old-put-of-a-small-file",
        file=AREA,
        find="self.store.sending_once.put_if_absent(",
        replace="self.store.put_if_absent(",
        tests=(f"{OF_PUBLISHING}::test_a_client_puts_nothing_a_second_time_without_a_look_at_the_mark[s3]",),
    ),
    Mutant(
        bug=2,
        name="a-mark-that-is-not-kept-is-taken-for-the-own-ledger's",
        file="src/penstock/sink/parquet/publishing.py",
        find="        same = found == (",
        replace="        same = found is None or found == (",
        tests=(f"{OF_PUBLISHING}::test_what_travels_in_the_decision_of_another_ledger_is_not_taken_for_published[s3]",),
    ),
    Mutant(
        bug=30,
        name="a-partition-value-is-taken-for-an-attempt",
        file="src/penstock/sink/parquet/layout.py",
        find='Attempt.find(name.rpartition("/")[2])',
        replace="Attempt.find(name)",
        tests=(f"{OF_SWEEPING}::test_a_partition_value_that_reads_like_a_dead_attempt_condemns_nothing[s3]",),
    ),
    Mutant(
        bug=5,
        name="a-small-file-travels-where-a-put-is-taken-however-late",
        file=UPLOAD,
        find=" and self._store.dates_requests and ",
        replace=" and ",
        tests=(f"{OF_PUBLISHING}::test_nothing_travels_in_a_decision_where_a_put_is_taken_however_late[gs]",),
    ),
    Mutant(
        bug=9,
        name="the-oldest-mark-is-taken-for-the-newest",
        file=AREA,
        find="{_LAST_POSITION - position:012d}",
        replace="{position:012d}",
        tests=(f"{OF_PUBLISHING}::test_a_late_mark_lowers_nothing[s3]",),
    ),
    Mutant(
        bug=9,
        name="a-completion-leaves-its-parts",
        file=GCS,
        find="            for name in names if len(names) <= _COMPOSED_AT_ONCE else self._names_in(self._folder(key, upload)):\n",
        replace="            for name in ():\n",
        tests=(f"{OF_STORES}::test_a_late_completion_resurrects_nothing[gs]",),
    ),
    Mutant(
        bug=10,
        name="any-object-is-taken-for-the-own",
        file=AREA,
        find="            self._require_ours(found, piece)\n",
        replace="            pass\n",
        tests=(f"{OF_PUBLISHING}::test_a_foreign_object_under_a_decided_name_is_told[100000-s3]",),
    ),
    Mutant(
        bug=10,
        name="the-size-alone-tells-the-own-object",
        file=AREA,
        find="if (found.size_bytes, found.tag) != (piece.totals.size_bytes, tag):",
        replace="if found.size_bytes != piece.totals.size_bytes:",
        tests=(f"{OF_PUBLISHING}::test_a_foreign_object_under_a_decided_name_is_told[100000-s3]",),
    ),
    Mutant(
        bug=11,
        name="an-object-is-created-without-a-condition",
        file=S3,
        find=', IfNoneMatch="*")',
        replace=")",
        tests=(f"{OF_STORES}::test_an_object_is_created_once[s3]",),
    ),
    Mutant(
        bug=11,
        name="a-file-is-renamed-onto-another",
        file=HDFS,
        find='lambda: self._place(aside, key, how="NONE")',
        replace='lambda: self._place(aside, key, how="OVERWRITE")',
        tests=(f"{OF_STORES}::test_an_object_is_created_once[hdfs]",),
    ),
    Mutant(
        bug=12,
        name="the-sweep-ends-uploads-of-a-live-driver",
        file=AREA,
        find="if attempt is None or cut.is_dead(attempt)]",
        replace="]",
        tests=(f"{OF_OBJECTS}::test_a_decided_batch_survives_the_sweep_of_a_newer_generation[s3-uploaded]",),
    ),
    Mutant(
        bug=12,
        name="the-sweep-ends-uploads-of-another-pipeline",
        file=AREA,
        find=" if is_owned(pending.key, self.owner) else None",
        replace="",
        tests=(f"{OF_SWEEPING}::test_what_another_pipeline_has_under_way_is_none_of_our_business",),
    ),
    Mutant(
        bug=12,
        name="a-ledger-ends-uploads-of-accounts",
        file="src/penstock/ledger/store.py",
        find="self._store.pending(folder)",
        replace='self._store.pending("")',
        tests=(f"{OF_SWEEPING}::test_a_ledger_leaves_uploads_below_it_alone",),
    ),
    Mutant(
        bug=14,
        name="uploads-are-named-and-not-ended",
        file=AREA,
        find="map_concurrently(self._discard, [] if dry_run else dead)",
        replace="map_concurrently(self._discard, [])",
        tests=(f"{OF_OBJECTS}::test_a_dry_run_names_what_a_sweep_takes_and_takes_nothing[s3-uploaded]",),
    ),
    Mutant(
        bug=19,
        name="staging-lies-where-readers-list",
        file="src/penstock/blob/client.py",
        find='STAGING = ".penstock-staging"',
        replace='STAGING = "table"',
        tests=(f"{OF_STORES}::test_an_upload_is_invisible_until_it_is_completed[gs]",),
    ),
    Mutant(
        bug=5,
        name="a-spooled-object-is-reported-unseen",
        file=SPOOL,
        find="        if found is None or (",
        replace="        if found is not None and (",
        tests=(f"{OF_SPOOL}::test_an_answer_that_was_lost_is_looked_for[not done-put at once]",),
    ),
    Mutant(
        bug=6,
        name="a-transaction-is-open-while-a-store-is-waited-for",
        file="src/penstock/sink/table/database_sink.py",
        find="        with self._fetched(publication), self._lock:\n",
        replace="        with self._lock:\n",
        tests=("tests/conformance/test_spool_fetch.py::test_no_transaction_is_open_while_pieces_are_fetched_and_removed[mysql]",),
    ),
    Mutant(
        bug=6,
        name="uploads-into-the-spool-are-left-for-ever",
        file=SPOOL,
        find="        for pending in self.store.pending(self.folder):",
        replace="        for pending in ():",
        tests=(f"{OF_SPOOL}::test_an_upload_that_a_task_began_is_ended_by_the_sweep[s3]",),
    ),
)
