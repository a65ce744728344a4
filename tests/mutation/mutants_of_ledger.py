"""Bugs planted in the ledger: one conditional append, and the proof that the store honours it."""

from tests.mutation.mutant import Mutant

DIRECTORY_LEDGER = "src/penstock/ledger/directory.py"
LOG_LEDGER = "src/penstock/ledger/log.py"
SQLITE_LEDGER = "src/penstock/ledger/sqlite.py"

OF_DIRECTORY_LEDGER = "tests/unit/test_ledger_directory.py"
OF_LEDGER = "tests/conformance/test_ledger_conformance.py"
OF_LOG_LEDGER = "tests/unit/test_ledger_log.py"
OF_SQLITE_LEDGER = "tests/unit/test_ledger_sqlite.py"
OF_READ_ONLY_LEDGER = "tests/unit/test_ledger_sqlite_read_only.py"

MUTANTS_OF_LEDGER = (
    Mutant(
        bug=1,
        name="rows-ride-after-the-decision-instead-of-in-it",
        file=SQLITE_LEDGER,
        find="""\
            if within is not None:
                within(connection)
            self._commit(connection)
""",
        replace="""\
            self._commit(connection)
            if within is not None:
                within(connection)
""",
        tests=(f"{OF_SQLITE_LEDGER}::test_rows_and_entry_are_one_transaction",),
    ),
    Mutant(
        bug=5,
        name="a-connection-without-an-answer-is-used-on",
        file=SQLITE_LEDGER,
        find="            self._commit(connection)\n",
        replace="        self._commit(connection)\n",
        tests=(f"{OF_SQLITE_LEDGER}::test_a_commit_without_an_answer_is_unknown_and_then_read_back",),
    ),
    Mutant(
        bug=6,
        name="a-failed-append-leaves-its-transaction-open",
        file=SQLITE_LEDGER,
        find="""\
        with self._lock, self.dropping_on_error():
            connection = self._open_for_writing()
            with self.translate_errors(Failed):
                connection.execute("BEGIN IMMEDIATE")
""",
        replace="""\
        with self._lock:
            connection = self._open_for_writing()
            with self.translate_errors(Failed):
                connection.execute("BEGIN IMMEDIATE")
""",
        tests=(f"{OF_SQLITE_LEDGER}::test_a_rider_that_fails_leaves_neither_rows_nor_entry",),
    ),
    Mutant(
        bug=7,
        name="a-position-is-looked-at-and-then-written",
        file=LOG_LEDGER,
        find="            created = self._store.put_if_absent(_key(entry.position), encode_entry(entry))  # I7\n",
        replace="""\
            created = self._get(entry.position) is None
            if created:
                self._store.put(_key(entry.position), encode_entry(entry))
""",
    ),
    Mutant(
        bug=7,
        name="a-file-is-looked-for-and-then-renamed",
        file=DIRECTORY_LEDGER,
        find="""\
        temporary = self._write(data, durably=True)
        created = self._link(temporary, path)
""",
        replace="""\
        created = not path.exists()
        temporary = self._write(data, durably=True)
        if created:
            temporary.replace(path)
""",
        tests=(f"{OF_LEDGER}::test_the_self_test_passes_and_leaves_the_ledger_as_it_was[directory]",),
    ),
    Mutant(
        bug=10,
        name="the-self-test-takes-a-lost-answer-for-a-lie",
        file="src/penstock/ledger/self_test.py",
        find="    if not winners:  # I12",
        replace="    if not winners and lost:  # I12",
        tests=(f"{OF_LOG_LEDGER}::test_the_self_test_reads_who_won_where_no_answer_tells",),
    ),
    Mutant(
        bug=11,
        name="the-self-test-passes-unseen",
        file=LOG_LEDGER,
        find='        prove_conditions(self._store, folder=f"prove/{0 if tail is None else tail.position:012d}")\n',
        replace="",
        tests=(f"{OF_LOG_LEDGER}::test_a_store_that_ignores_conditions_is_found_out",),
    ),
    Mutant(
        bug=11,
        name="the-self-test-has-one-writer",
        file="src/penstock/ledger/self_test.py",
        find="WRITERS = 4",
        replace="WRITERS = 1",
        tests=(f"{OF_LOG_LEDGER}::test_a_store_that_ignores_conditions_is_found_out",),
    ),
    Mutant(
        bug=19,
        name="the-folders-of-a-ledger-may-be-gone-after-a-power-cut",
        file=SQLITE_LEDGER,
        find="            create_durably(self._path.parent, make_private_directory)\n",
        replace="            make_private_directory(self._path.parent)\n",
        tests=(f"{OF_SQLITE_LEDGER}::test_the_folders_of_a_new_file_are_on_the_disk",),
    ),
    Mutant(
        bug=11,
        name="locks-of-one-file-system-stand-for-those-of-any-other",
        file=SQLITE_LEDGER,
        find="            if file_system in _PROVED:\n",
        replace="            if _PROVED:\n",
        tests=(f"{OF_SQLITE_LEDGER}::test_of_one_file_system_nothing_follows_for_another",),
    ),
    Mutant(
        bug=11,
        name="a-file-system-counts-as-proved-before-it-was-asked",
        file=SQLITE_LEDGER,
        find="            prove_locks(connection, self._path)\n",
        replace="            _PROVED.add(file_system)\n            prove_locks(connection, self._path)\n",
        tests=(f"{OF_SQLITE_LEDGER}::test_of_one_file_system_nothing_follows_for_another",),
    ),
    Mutant(
        bug=11,
        name="nobody-asks-whether-locks-hold",
        file=SQLITE_LEDGER,
        find="            prove_locks(connection, self._path)\n",
        replace="",
        tests=(f"{OF_SQLITE_LEDGER}::test_locks_that_do_not_hold_are_found_out",),
    ),
    Mutant(
        bug=12,
        name="an-entry-is-deleted-because-the-disk-failed-after-it",
        file=DIRECTORY_LEDGER,
        find="            self._sync(path.parent)\n",
        replace="""\
            try:
                self._sync(path.parent)
            except Failed:
                path.unlink()
                raise
""",
        tests=(f"{OF_DIRECTORY_LEDGER}::test_a_failing_disk_fails_the_put_and_is_never_asked_twice",),
    ),
    Mutant(
        bug=14,
        name="temporary-files-of-the-ledger-are-kept",
        file=DIRECTORY_LEDGER,
        find='            self.delete(f"{_TEMPORARY}/{name}")\n',
        replace="            continue\n",
        tests=(f"{OF_DIRECTORY_LEDGER}::test_a_link_without_an_answer_is_unknown_or_did_not_happen",),
    ),
    Mutant(
        bug=16,
        name="an-occupied-position-is-overwritten",
        file=SQLITE_LEDGER,
        find="""\
            raise PositionTaken
        if entry.position != tail + 1:
""",
        replace="""\
            connection.execute("DELETE FROM penstock_ledger WHERE position >= ?", (entry.position,))
        elif entry.position != tail + 1:
""",
        tests=(f"{OF_LEDGER}::test_an_occupied_position_is_taken_and_keeps_its_first_entry[sqlite]",),
    ),
    Mutant(
        bug=16,
        name="a-forgotten-position-is-free-again",
        file=LOG_LEDGER,
        find="if not created or entry.position < self._floor_after_put():",
        replace="if not created:",
        tests=(f"{OF_LOG_LEDGER}::test_a_driver_that_slept_while_its_next_position_was_filled_and_forgotten_is_refused",),
    ),
    Mutant(
        bug=16,
        name="a-server-of-spark-connect-may-have-a-ledger-of-its-own",
        file="src/penstock/run/connect.py",
        find="if newest is not None and newest.nonce == left:",
        replace="if newest is None or newest.nonce:",
        tests=("tests/unit/test_run_connect.py::test_a_server_that_sees_another_ledger_is_refused",),
    ),
    Mutant(
        bug=2,
        name="an-emptied-ledger-counts-as-a-new-one",
        file="src/penstock/ledger/sqlite.py",
        find="        _require_not_emptied(self._path)\n",
        replace="",
        tests=("tests/unit/test_ledger_sqlite.py::test_a_file_that_was_emptied_is_told_as_that_and_the_remedy_goes_on",),
    ),
    Mutant(
        bug=16,
        name="a-ledger-that-changes-is-read-as-if-it-stood-still",
        file=SQLITE_LEDGER,
        find="                    if self._still is None or self._still == self._still_file():\n",
        replace="                    if self._still is None or self._still_file() is not None:\n",
        tests=(f"{OF_READ_ONLY_LEDGER}::test_what_changes_while_it_is_read_is_read_again",),
    ),
    Mutant(
        bug=16,
        name="the-log-of-a-ledger-that-nobody-may-write-is-left-out",
        file="src/penstock/ledger/sqlite_files.py",
        find="    if _has_content(log):\n        raise",
        replace="    if not log:\n        raise",
        tests=(f"{OF_READ_ONLY_LEDGER}::test_what_cannot_be_read_whole_is_refused",),
    ),
)
