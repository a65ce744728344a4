"""Bugs planted where checkpoints are made again, and where savepoints of them are kept."""

from tests.mutation.mutant import Mutant

MAKING = "src/penstock/checkpoint/rebuilding.py"
FROM_LEDGER = "src/penstock/run/rebuilding.py"
CATCHING_UP = "src/penstock/checkpoint/catching_up.py"
WITH_STATE = "src/penstock/run/state_rebuilding.py"
SAVEPOINT = "src/penstock/checkpoint/savepoint.py"
FILES = "src/penstock/checkpoint/files.py"

OF_MAKING = "tests/upgrade/test_checkpoint_rebuilding.py"
OF_CATCHING_UP = "tests/upgrade/test_checkpoint_catching_up.py"
OF_STATE = "tests/spark/test_savepoints.py"
OF_SAVEPOINTS = "tests/upgrade/test_savepoints.py"
OF_LINKS = "tests/attack/test_linked_tables.py"
OF_LEDGER = "tests/crash/test_savepoints_killed.py"

MUTANTS_OF_SAVEPOINTS = (
    Mutant(
        bug=24,
        name="both-entries-of-a-rebuilt-offset-log-are-the-newest",
        file=MAKING,
        find="        offsets = {name: ranges[name].end if is_last else ranges[name].start for name in order}",
        replace="        offsets = {name: ranges[name].end for name in order}",
        tests=(f"{OF_MAKING}::test_the_logs_are_those_that_spark_wrote",),
    ),
    Mutant(
        bug=19,
        name="a-rebuilt-log-of-files-is-compacted-where-spark-does-not-look",
        file=MAKING,
        find="    compacted = (last + 1) // interval * interval - 1",
        replace="    compacted = last // interval * interval - 1",
        tests=(f"{OF_MAKING}::test_the_log_of_files_is_compacted_where_spark_looks_for_it",),
    ),
    Mutant(
        bug=24,
        name="a-checkpoint-is-rebuilt-without-files-that-were-read",
        file=FROM_LEDGER,
        find="        if fingerprint(listed) != each.content:",
        replace="        if False:",
        tests=(f"{OF_LEDGER}::test_files_that_the_ledger_does_not_list_are_refused",),
    ),
    Mutant(
        bug=24,
        name="a-checkpoint-is-rebuilt-without-files-that-the-ledger-has-forgotten",
        file=FROM_LEDGER,
        find="    if begins is not None:",
        replace="    if False:",
        tests=(f"{OF_LEDGER}::test_files_that_the_ledger_does_not_list_are_refused",),
    ),
    Mutant(
        bug=24,
        name="a-rebuilt-log-of-files-has-entries-without-files",
        file=FROM_LEDGER,
        find="        found |= _by_entry(listed, after=log_offset(each.start), end=end)",
        replace="        found[end] = listed",
        tests=(f"{OF_LEDGER}::test_a_batch_that_read_several_entries_of_the_log_of_files_is_rebuilt_with_all_of_them",),
    ),
    Mutant(
        bug=12,
        name="a-savepoint-shares-a-file-that-is-damaged-in-the-one-before",
        file=SAVEPOINT,
        find="        return files.read(original) == data and files.link(self._at(name), original)",
        replace="        return files.link(self._at(name), original)",
        tests=(f"{OF_SAVEPOINTS}::test_a_damaged_file_of_the_savepoint_before_is_not_linked",),
    ),
    Mutant(
        bug=12,
        name="a-savepoint-takes-the-checksum-of-another-table",
        file=SAVEPOINT,
        find='or not files.is_link(self._at(name), f"{earlier.name}/checkpoint/{name}"):',
        replace="or earlier.files is None:",
        tests=(f"{OF_SAVEPOINTS}::test_a_table_of_the_savepoint_before_that_is_no_longer_the_checkpoints_is_read",),
    ),
    Mutant(
        bug=12,
        name="a-savepoint-writes-through-a-link-to-the-checkpoint",
        file=FILES,
        find='            with hidden.open("xb") as file:',
        replace='            with hidden.open("wb") as file:',
        tests=(f"{OF_LINKS}::test_what_another_command_is_linking_is_not_written_through",),
    ),
    Mutant(
        bug=12,
        name="a-folder-of-links-is-lost-in-a-power-cut",
        file=FILES,
        find="            create_durably(path.parent)\n            hidden = _hidden(path)\n"
        "            hidden.unlink(missing_ok=True)\n            try:",
        replace="            path.parent.mkdir(parents=True, exist_ok=True)\n            hidden = _hidden(path)\n"
        "            hidden.unlink(missing_ok=True)\n            try:",
        tests=(f"{OF_LINKS}::test_a_folder_of_links_is_as_durable_as_they_are",),
    ),
    Mutant(
        bug=12,
        name="a-savepoint-links-a-link",
        file="src/penstock/support/private_files.py",
        find="os.O_RDONLY | os.O_NOFOLLOW",
        replace="os.O_RDONLY",
        tests=(f"{OF_LINKS}::test_a_table_that_is_a_symbolic_link_is_copied",),
    ),
    Mutant(
        bug=24,
        name="a-large-file-of-the-state-matches-any-checksum",
        file="src/penstock/checkpoint/hadoop_checksum.py",
        find="        return crc32_in(checksum, size_bytes=len(data)) == zlib.crc32(data)",
        replace="        return crc32_in(checksum, size_bytes=len(data)) is not None",
        tests=("tests/unit/test_hadoop_checksum.py::test_two_parts_that_changed_places_are_noticed",),
    ),
    Mutant(
        bug=12,
        name="a-savepoint-is-made-of-a-damaged-table",
        file=SAVEPOINT,
        find="size_bytes=size_bytes), crc32 == expected",
        replace="size_bytes=size_bytes), True",
        tests=(f"{OF_SAVEPOINTS}::test_a_table_that_is_damaged_in_the_checkpoint_makes_no_savepoint",),
    ),
    Mutant(
        bug=24,
        name="a-batch-computed-again-forgets-the-watermark",
        file=CATCHING_UP,
        find='            "batchWatermarkMs": follows_ms,',
        replace='            "batchWatermarkMs": 0,',
        tests=(f"{OF_CATCHING_UP}::test_a_batch_is_planned_as_spark_planned_it",),
    ),
    Mutant(
        bug=19,
        name="a-log-of-files-that-catches-up-loses-what-it-had",
        file=CATCHING_UP,
        find="        listed = {**before, **lists}",
        replace="        listed = dict(lists)",
        tests=(f"{OF_CATCHING_UP}::test_the_logs_of_sources_get_what_was_read_since",),
    ),
    Mutant(
        bug=24,
        name="state-is-made-again-of-other-rows-than-were-delivered",
        file=WITH_STATE,
        find="    if rows != decision.rows_in:",
        replace="    if False:",
        tests=(f"{OF_STATE}::test_state_that_would_be_another_one_is_not_made_again",),
    ),
    Mutant(
        bug=24,
        name="state-is-made-again-over-records-that-were-gone",
        file=WITH_STATE,
        find="            if before is not None and without_notes(each.start) != without_notes(before):",
        replace="            if False:",
        tests=("tests/unit/test_same_state.py::test_decisions_adjoin_the_savepoint_and_each_other",),
    ),
    Mutant(
        bug=24,
        name="state-is-made-again-without-a-batch-that-the-ledger-forgot",
        file=WITH_STATE,
        find="    if found != list(range(behind.first + 1, newest + 1)):",
        replace="    if False:",
        tests=("tests/unit/test_same_state.py::test_decisions_adjoin_the_savepoint_and_each_other",),
    ),
)
