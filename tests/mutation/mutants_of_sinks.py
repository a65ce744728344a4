"""Bugs planted in the sinks and in what they share."""

from tests.mutation.mutant import Mutant

AREA = "src/penstock/sink/parquet/directory/area.py"
MEMORY = "src/penstock/sink/memory.py"
MODEL = "src/penstock/core/model.py"
PARQUET = "src/penstock/sink/parquet/publishing.py"
MARKS = "src/penstock/sink/table/marker_store.py"
SERVER = "src/penstock/sink/table/database_sink.py"
TABLE = "src/penstock/sink/table/publication.py"

OF_FIRST_BATCH = "tests/conformance/test_first_batch_crashes.py::test_the_first_batch_survives"
OF_GROWN = "tests/attack/test_grown_tables.py"
OF_HELD = "tests/unit/test_spool_row_cache.py"
OF_MEMORY = "tests/conformance/test_memory_conformance.py::TestMemory"
OF_PARQUET = "tests/conformance/test_parquet_conformance.py::TestParquet"
OF_PARQUET_PUBLISHING = "tests/unit/test_parquet_publish.py"
OF_PARQUET_STAGING = "tests/unit/test_parquet_stage.py"
OF_SPOOL = "tests/unit/test_spool.py"
OF_SQLITE = "tests/conformance/test_sqlite_conformance.py::TestSqlite"
OF_SQLITE_PUBLISHING = "tests/unit/test_sqlite_publish.py"

OF_WRITES = "tests/unit/test_sqlite_writes.py"
OF_READERS = "tests/unit/test_read.py"

MUTANTS_OF_SINKS = (
    Mutant(
        bug=7,
        name="a-decided-batch-deletes-by-the-settings-of-now",
        file=TABLE,
        find='deletes=ref.get("deletes") is True',
        replace="deletes=target.deletes",
        tests=(f"{OF_WRITES}::test_a_batch_is_written_as_it_was_decided_whether_rows_delete_or_not",),
    ),
    Mutant(
        bug=7,
        name="a-row-that-deletes-is-checked-as-a-whole",
        file="src/penstock/sink/spool/deletes.py",
        find="plain.filter(deletes).select(self._key_in(plain))",
        replace="plain.filter(deletes)",
        tests=(f"{OF_WRITES}::test_of_a_row_that_deletes_only_the_key_has_to_fit",),
    ),
    Mutant(
        bug=33,
        name="a-row-that-deletes-is-hashed-as-if-its-key-were-all-columns",
        file="src/penstock/sink/spool/deletes.py",
        find="plain.select(key) if is_distinct else staged",
        replace="plain.select(key)",
        tests=("tests/unit/test_spool.py::test_a_row_that_deletes_has_the_hash_of_what_is_staged_of_it",),
    ),
    Mutant(
        bug=7,
        name="rows-that-delete-do-not-count-as-displaced",
        file="src/penstock/sink/sqlite/load.py",
        find="Loaded(rows=upserted, displaced=displaced).leaving_out(deleting)",
        replace="Loaded(rows=upserted + deleting.rows, displaced=displaced)",
        tests=(f"{OF_WRITES}::test_the_marker_counts_what_is_there_through_any_history[delete]",),
    ),
    Mutant(
        bug=35,
        name="columns-are-added-to-another-table",
        file="src/penstock/sink/table/target.py",
        find="0 < len(missing) < len(columns) and",
        replace="0 < len(missing) and",
        tests=(f"{OF_GROWN}::test_nothing_is_added_to_a_table_that_does_not_fit_besides[mysql-columns0]",),
    ),
    Mutant(
        bug=35,
        name="columns-are-added-before-the-others-are-compared",
        file="src/penstock/sink/table/sql_sink.py",
        find="        self._require_fit(connection, table_schema, there)\n        with ADD_COLUMNS",
        replace="        with ADD_COLUMNS",
        tests=(f"{OF_GROWN}::test_nothing_is_added_to_a_table_that_does_not_fit_besides[mysql-columns1]",),
    ),
    Mutant(
        bug=35,
        name="a-look-refuses-columns-that-a-start-adds",
        file="src/penstock/sink/table/sql_sink.py",
        find="self._require_fit(connection, table_schema, self._growth(connection, table_schema, rows, marker)[0])",
        replace="self._require_fit(connection, table_schema, rows)",
        tests=(f"{OF_GROWN}::test_a_look_changes_nothing_and_says_whether_a_start_would_work[sqlite]",),
    ),
    Mutant(
        bug=43,
        name="a-staged-file-that-was-cut-short-is-shown",
        file="src/penstock/sink/parquet/directory/rename.py",
        find="    if found_bytes != decided_bytes:\n",
        replace="    if False:\n",
        tests=("tests/attack/test_damage.py::test_a_damaged_file_is_refused_or_does_no_harm[parquet-staging-0]",),
    ),
    Mutant(
        bug=19,
        name="readers-miss-the-batch-they-read-as-of",
        file="src/penstock/sink/parquet/table.py",
        find="order <= (generation, batch_id)",
        replace="order < (generation, batch_id)",
        tests=(f"{OF_READERS}::test_the_newest_batch_is_seen_before_the_ledger_notes_that_it_is_published",),
    ),
    Mutant(
        bug=19,
        name="readers-see-what-some-account-does-not-show-yet",
        file="src/penstock/run/reading.py",
        find="return all((marks[account] or 0) >= entry.position for account in held & marks.keys())",
        replace="return any((marks[account] or 0) >= entry.position for account in held & marks.keys())",
        tests=(f"{OF_READERS}::test_a_batch_that_one_account_does_not_show_yet_is_seen_in_none",),
    ),
    Mutant(
        bug=2,
        name="readers-compare-numbers-of-batches-across-queries",
        file="src/penstock/sink/parquet/table.py",
        find="order <= (generation, batch_id)",
        replace="order[1] <= batch_id",
        tests=(f"{OF_READERS}::test_batches_of_an_adopted_checkpoint_come_after_all_before_it",),
    ),
    Mutant(
        bug=2,
        name="a-table's-position-is-compared-across-ledgers",
        file=TABLE,
        find="        require_same(markers.batch_at(publication), publication, marker)\n",
        replace="",
        tests=(f"{OF_SQLITE}::test_a_position_of_another_ledger_is_not_taken_for_published",),
    ),
    Mutant(
        bug=2,
        name="an-account's-position-is-compared-across-ledgers",
        file=PARQUET,
        find="        self._require_same_ledger(marker)\n",
        replace="",
        tests=(f"{OF_PARQUET}::test_a_position_of_another_ledger_is_not_taken_for_published",),
    ),
    Mutant(
        bug=4,
        name="a-decided-file-that-expired-is-passed-over",
        file=PARQUET,
        find="""\
        if self._is_marked():
            return
        batch = self""",
        replace="""\
        return
        batch = self""",
        tests=(f"{OF_PARQUET_PUBLISHING}::test_lost_staging_shows_nothing_of_the_batch_in_any_account",),
    ),
    Mutant(
        bug=4,
        name="a-sweep-deletes-what-is-decided-and-not-published",
        file=MODEL,
        find="if attempt.token in self.kept or attempt.generation > self.generation:",
        replace="if attempt.generation > self.generation:",
        tests=(f"{OF_MEMORY}::test_a_decided_batch_survives_the_sweep_of_a_newer_generation",),
    ),
    Mutant(
        bug=9,
        name="a-table-takes-the-same-position-twice",
        file=TABLE,
        find="if marker.position >= publication.position:",
        replace="if marker.position > publication.position:",
        tests=(f"{OF_SQLITE}::test_publishing_again_changes_nothing",),
    ),
    Mutant(
        bug=9,
        name="a-table-takes-a-lower-position",
        file=TABLE,
        find="if marker.position >= publication.position:",
        replace="if marker.position == publication.position:",
        tests=(f"{OF_SQLITE}::test_a_zombie_that_publishes_an_older_batch_changes_nothing",),
    ),
    Mutant(
        bug=9,
        name="an-account-takes-the-same-position-twice",
        file=PARQUET,
        find="        if marker.position < self.publication.position:",
        replace="        if marker.position <= self.publication.position:",
        tests=(f"{OF_PARQUET}::test_maintenance_is_respected",),
    ),
    Mutant(
        bug=9,
        name="the-memory-takes-the-same-position-twice",
        file=MEMORY,
        find="        if kept.position >= position:\n",
        replace="        if kept.position > position:\n",
        tests=(f"{OF_MEMORY}::test_publishing_again_changes_nothing",),
    ),
    Mutant(
        bug=10,
        name="another's-file-is-taken-for-the-own",
        file="src/penstock/sink/parquet/directory/rename.py",
        find="    if not same:\n",
        replace="    if same is None:\n",
        tests=(f"{OF_PARQUET_PUBLISHING}::test_a_foreign_file_under_a_decided_name_is_told_and_left_alone",),
    ),
    Mutant(
        bug=12,
        name="the-spool-is-emptied-before-the-commit",
        file=SERVER,
        find="""\
            self._commit(connection)  # I6: rows and marker become visible together
""",
        replace="""\
            self._spool.discard(publication.staged, pipeline=publication.pipeline)
            self._commit(connection)
""",
        tests=(f"{OF_FIRST_BATCH}[SpooledRig-sqlite.commit-kill]",),
    ),
    Mutant(
        bug=12,
        name="the-spool-of-a-ride-is-emptied-before-its-commit-is-seen",
        file="src/penstock/sink/table/sink.py",
        find="""\
            yield
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
""",
        replace="""\
            try:
                yield
            finally:
                self._spool.discard(publication.staged, pipeline=publication.pipeline)
""",
        tests=(
            "tests/unit/test_sqlite_ride.py::test_the_files_of_a_ride_go_when_its_ledger_has_committed",
            "tests/live/test_served_ride.py::test_the_files_of_a_ride_go_when_its_ledger_has_committed",
        ),
    ),
    Mutant(
        bug=12,
        name="a-second-ledger-sweeps-the-spool-of-the-first",
        file="src/penstock/run/runtime.py",
        find="    require_own_staging(runtime.ledger, sinks, pipeline=runtime.pipeline)\n",
        replace="",
        tests=("tests/live/test_run_signatures.py::test_a_second_ledger_is_refused_and_takes_nothing[directory]",),
    ),
    Mutant(
        bug=13,
        name="an-abandoned-file-is-deleted",
        file="src/penstock/sink/parquet/directory/upload.py",
        find="""\
            with suppress(OSError):
                file.close()
""",
        replace="""\
            with suppress(OSError):
                file.close()
        self._path.unlink(missing_ok=True)
""",
        tests=(f"{OF_PARQUET_STAGING}::test_a_broken_disk_fails_the_attempt_and_leaves_the_rest_to_the_sweep",),
    ),
    Mutant(
        bug=13,
        name="an-abandoned-spool-file-is-deleted",
        file="src/penstock/sink/spool/root.py",
        find="""\
    def abandon(self) -> None:
        self._file.close()
""",
        replace="""\
    def abandon(self) -> None:
        self._file.close()
        os.unlink(self._file.name)
""",
        tests=(f"{OF_SPOOL}::test_an_abandoned_attempt_is_left_to_the_sweep",),
    ),
    Mutant(
        bug=17,
        name="only-the-last-rows-of-a-piece-are-held",
        file="src/penstock/sink/spool/writer.py",
        find="self._in_memory.append(conform)",
        replace="self._in_memory[:] = [conform]",
        tests=(f"{OF_HELD}::test_what_was_staged_here_is_not_read_back",),
    ),
    Mutant(
        bug=17,
        name="the-newest-rows-that-are-held-are-given-for-every-piece",
        file="src/penstock/sink/spool/writer.py",
        find="return self._rows.get(piece.name)",
        replace="return next(reversed(self._rows.values()), None)",
        tests=(f"{OF_HELD}::test_held_and_other_pieces_come_in_their_frozen_order",),
    ),
    Mutant(
        bug=7,
        name="rows-that-are-held-are-shown-though-another-driver-removed-their-file",
        file="src/penstock/sink/spool/reader.py",
        find="""\
    with _translate_errors(piece, place), _open(piece, place) as file:
        _require_size(piece, file.seek(0, io.SEEK_END), place)
        yield from rows
""",
        replace="    yield from rows\n",
        tests=(f"{OF_HELD}::test_a_file_that_is_gone_was_published_by_somebody_else",),
    ),
    Mutant(
        bug=14,
        name="staged-files-are-named-and-not-removed",
        file=AREA,
        find="for path in () if dry_run else dead:",
        replace="for path in ():",
        tests=(f"{OF_PARQUET}::test_a_dry_run_names_what_a_sweep_takes_and_takes_nothing",),
    ),
    Mutant(
        bug=14,
        name="spool-files-are-named-and-not-removed",
        file="src/penstock/sink/spool/spool.py",
        find="for spooled in () if dry_run else dead:",
        replace="for spooled in ():",
        tests=(f"{OF_MEMORY}::test_a_dry_run_names_what_a_sweep_takes_and_takes_nothing",),
    ),
    Mutant(
        bug=14,
        name="published-spool-files-are-kept",
        file=SERVER,
        find="""\
            published = self._publish(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
""",
        replace="""\
            published = self._publish(publication)
""",
        tests=(f"{OF_SQLITE}::test_a_decided_batch_survives_the_sweep_of_a_newer_generation",),
    ),
    Mutant(
        bug=14,
        name="attempts-that-lost-are-kept-while-their-driver-runs",
        file=MODEL,
        find="        return self.batch_id is not None and attempt.batch_id <= self.batch_id\n",
        replace="        return False\n",
        tests=(f"{OF_MEMORY}::test_only_the_decided_one_of_several_attempts_is_ever_seen",),
    ),
    Mutant(
        bug=15,
        name="rows-and-marker-are-two-transactions",
        file=MARKS,
        find="        with self._marking():\n",
        replace="""\
        self._execute("COMMIT", {})
        self._execute("BEGIN", {})
        with self._marking():
""",
        tests=(f"{OF_FIRST_BATCH}[SpooledRig-sqlite.commit-kill]",),
    ),
    Mutant(
        bug=15,
        name="a-commit-without-an-answer-is-taken-for-done",
        file="src/penstock/sql/session.py",
        find="            reason, advice = self._diagnose(cause)\n",
        replace="            return\n",
        tests=(f"{OF_FIRST_BATCH}[SpooledRig-sqlite.commit-error]",),
    ),
    Mutant(
        bug=15,
        name="the-marker-is-not-read-on-a-new-connection",
        file=SERVER,
        find="        with self._database.dropping_on_error():\n            connection = self._database.writable()\n",
        replace="        with self._lock:\n            connection = self._database.writable()\n",
        tests=(f"{OF_SQLITE_PUBLISHING}::test_after_any_fault_the_next_try_shows_the_batch_once",),
    ),
    Mutant(
        bug=15,
        name="an-account-is-marked-before-its-files-are-shown",
        file=PARQUET,
        find="        gone = self.area.show(self.pieces)\n",
        replace="""\
        self.area.advance(self._mark())
        gone = self.area.show(self.pieces)
""",
        tests=("tests/conformance/test_parquet_conformance.py::TestParquetKilled::test_a_fault_at_any_step[rename.move=kill]",),
    ),
    Mutant(
        bug=17,
        name="nobody-counts-the-rows-that-were-moved",
        file=TABLE,
        find="    _require_all(loaded, publication, target)  # I1, I2\n",
        replace="",
        tests=(f"{OF_SQLITE_PUBLISHING}::test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown",),
    ),
    Mutant(
        bug=17,
        name="equal-counts-are-taken-for-equal-content",
        file="src/penstock/core/sink_report.py",
        find="self.expected.rows == self.found.rows and self.expected.digest == self.found.digest",
        replace="self.expected.rows == self.found.rows",
        tests=(f"{OF_MEMORY}::test_damage_is_found",),
    ),
    Mutant(
        bug=30,
        name="a-slash-makes-a-directory",
        file="src/penstock/sink/parquet/layout.py",
        find="%'*/:=?",
        replace="%'*:=?",
        tests=(f"{OF_PARQUET}::test_what_was_decided_is_shown_value_by_value",),
    ),
    Mutant(
        bug=30,
        name="a-name-may-have-any-length",
        file="src/penstock/sink/parquet/layout.py",
        find="        if size_bytes > NAME_LIMIT_BYTES and",
        replace="        if size_bytes > 10 * NAME_LIMIT_BYTES and",
        tests=("tests/unit/test_parquet_hive.py::test_a_name_may_be_as_long_as_file_systems_take",),
    ),
    Mutant(
        bug=17,
        name="a-sink-called-quarantine-gets-no-rows",
        file="src/penstock/run/runtime.py",
        find="if self.quarantine is None or sink is not self.quarantine.sink)",
        replace='if sink.name != "quarantine")',
        tests=("tests/unit/test_run_delivery.py::test_a_sink_that_is_only_called_quarantine_gets_every_row",),
    ),
    Mutant(
        bug=42,
        name="what-stands-behind-the-host-is-not-looked-at",
        file="src/penstock/sql/url.py",
        find='    if host is not None and "@" in rest[host.end() :]:\n',
        replace="    if False:\n",
        tests=("tests/unit/test_malformed_urls.py::test_no_part_of_a_password_is_shown_whatever_is_malformed",),
    ),
    Mutant(
        bug=42,
        name="what-libpq-takes-for-a-host-is-one",
        file="src/penstock/sql/postgres/database.py",
        find="        _require_plain(url, parts)\n",
        replace="",
        tests=("tests/unit/test_malformed_urls.py::test_no_part_of_a_password_is_shown_whatever_is_malformed",),
    ),
    Mutant(
        bug=42,
        name="a-key-before-a-slash-is-a-bucket",
        file="src/penstock/blob/url.py",
        find='and not at and ":" not in authority)',
        replace="and not at)",
        tests=("tests/unit/test_malformed_urls.py::test_no_part_of_a_password_is_shown_whatever_is_malformed",),
    ),
    Mutant(
        bug=42,
        name="a-place-without-a-scheme-is-a-directory-whatever-is-in-it",
        file="src/penstock/spec/place.py",
        find="    if _LET_IN.match(value):\n",
        replace="    if False:\n",
        tests=("tests/unit/test_malformed_urls.py::test_no_part_of_a_password_is_shown_whatever_is_malformed",),
    ),
)
