"""Bugs planted in the journal: receivers elsewhere acknowledged what was not durable, or removed what was not read."""

from tests.mutation.mutant import Mutant

JOURNAL = "src/penstock/journal/journal.py"
RECOVERY = "src/penstock/journal/recovery.py"
STREAM = "src/penstock/source/journal/stream.py"
SOURCE = "tests/unit/test_journal_source.py"
RECEIVER = "tests/live/test_receiver.py"
UNIT = "tests/unit/test_journal.py"
READERS = "tests/unit/test_journal_readers.py"
CRASHES = "tests/unit/test_journal_crashes.py"
ANY_CRASH = f"{CRASHES}::test_a_crash_of_the_machine_at_any_operation_loses_nothing_and_doubles_nothing[alone]"

MUTANTS_OF_THE_JOURNAL = (
    Mutant(
        bug=26,
        name="events-are-acknowledged-before-they-are-on-the-disk",
        file=JOURNAL,
        find="                file.sync()  # I1: before it returns nobody is told\n",
        replace="                pass\n",
        tests=(ANY_CRASH, f"{UNIT}::test_both_directories_have_an_event_before_it_is_acknowledged"),
    ),
    Mutant(
        bug=26,
        name="events-are-acknowledged-before-the-copy-has-them",
        file=JOURNAL,
        find="        for file in self._files:\n            with SYNC",
        replace="        for file in self._files[:1]:\n            with SYNC",
        tests=(f"{UNIT}::test_both_directories_have_an_event_before_it_is_acknowledged",),
    ),
    Mutant(
        bug=26,
        name="the-name-of-a-segment-is-not-on-the-disk",
        file=JOURNAL,
        find="            file.sync()\n            self._storage.sync_directory(path.parent)\n",
        replace="            file.sync()\n",
        tests=(ANY_CRASH, f"{CRASHES}::test_a_new_segment_has_its_name_on_the_disk"),
    ),
    Mutant(
        bug=26,
        name="readers-see-what-is-not-on-the-disk",
        file=JOURNAL,
        find="note = encode_note(DurableNote(next=self._durable,",
        replace="note = encode_note(DurableNote(next=self._durable + 1,",
        tests=(f"{READERS}::test_a_batch_ends_at_its_limits", ANY_CRASH),
    ),
    Mutant(
        bug=26,
        name="an-fsync-that-failed-is-believed-by-the-next-writer",
        file=RECOVERY,
        find="        file.write(data)\n        file.truncate(size)\n",
        replace="        file.truncate(size)\n",
        tests=(f"{CRASHES}::test_an_fsync_that_failed_is_not_believed_by_the_next_writer",),
    ),
    Mutant(
        bug=26,
        name="a-number-that-a-producer-sent-before-is-taken-again",
        file="src/penstock/journal/producers.py",
        find="        if last is None or number == last + 1:\n",
        replace="        if last is None or number <= last + 1:\n",
        tests=(f"{UNIT}::test_a_repeat_of_a_numbered_event_is_recognised_and_has_the_same_place",),
    ),
    Mutant(
        bug=26,
        name="a-number-that-leaves-a-gap-is-taken",
        file="src/penstock/journal/producers.py",
        find="        if number > last:\n",
        replace="        if number > last + 1_000:\n",
        tests=(f"{UNIT}::test_a_number_that_leaves_a_gap_is_refused_and_nothing_of_its_request_is_taken",),
    ),
    Mutant(
        bug=26,
        name="producers-are-forgotten-at-a-start",
        file=RECOVERY,
        find="    producers = Producers(last.header.producers)\n",
        replace="    producers = Producers({})\n",
        tests=(f"{UNIT}::test_a_repeat_is_recognised_after_a_start_and_after_its_segment_is_gone",),
    ),
    Mutant(
        bug=26,
        name="a-segment-begins-with-numbers-that-may-still-be-lost",
        file="src/penstock/journal/producers.py",
        find="        return dict(self._durable)\n",
        replace="        return {**self._durable, **self._pending}\n",
        tests=(f"{UNIT}::test_events_that_were_lost_with_their_group_are_no_repeats",),
    ),
    Mutant(
        bug=26,
        name="a-torn-tail-is-not-cut",
        file=RECOVERY,
        find="        file.truncate(size)\n",
        replace="",
        tests=(f"{UNIT}::test_a_torn_tail_is_cut[40]",),
    ),
    Mutant(
        bug=26,
        name="an-acknowledged-frame-in-the-middle-is-cut-as-a-torn-tail",
        file=RECOVERY,
        find="    if any(frame.durable > torn.sequence for frame in frames_behind(behind, 1, seed=last.seed)):\n",
        replace="    if not behind:\n",
        tests=(f"{UNIT}::test_a_bad_frame_in_the_middle_is_an_alarm_with_its_place[1]",),
    ),
    Mutant(
        bug=26,
        name="acknowledged-events-missing-at-the-end-are-passed-over",
        file=RECOVERY,
        find="    if note is not None and note.next > end:\n",
        replace="    if note is None:\n",
        tests=(f"{UNIT}::test_an_acknowledged_event_that_is_missing_at_the_end_is_an_alarm",),
    ),
    Mutant(
        bug=26,
        name="numbers-that-a-reader-has-are-given-away-again",
        file=JOURNAL,
        find="            if each.next > self._next:\n",
        replace="            if each.next > self._next + 1_000:\n",
        tests=(f"{UNIT}::test_an_acknowledged_event_that_is_missing_at_the_end_is_an_alarm",),
    ),
    Mutant(
        bug=26,
        name="a-segment-goes-before-the-slowest-reader-has-it",
        file=JOURNAL,
        find="            needed = min((",
        replace="            needed = max((",
        tests=(f"{READERS}::test_a_segment_waits_for_the_slowest_reader",),
    ),
    Mutant(
        bug=26,
        name="a-full-journal-takes-events",
        file=JOURNAL,
        find="        if self._size + more > limits.most_bytes and (",
        replace="        if self._size + more > 9 * limits.most_bytes and (",
        tests=(f"{READERS}::test_a_full_journal_refuses_events_and_removes_none_that_is_unread",),
    ),
    Mutant(
        bug=26,
        name="a-reader-goes-back",
        file="src/penstock/journal/readers.py",
        find="    if known is not None and known.next >= registration.next:\n        return\n",
        replace="",
        tests=(f"{READERS}::test_a_reader_never_goes_back",),
    ),
    Mutant(
        bug=26,
        name="a-journal-has-two-writers",
        file="src/penstock/journal/storage.py",
        find="            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        replace="            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        tests=(f"{READERS}::test_a_journal_has_one_writer",),
    ),
    Mutant(
        bug=26,
        name="a-group-is-answered-before-it-is-durable",
        file="src/penstock/journal/group.py",
        find="            journal.commit()\n        except",
        replace="            for future, receipts in answers:\n                future.set_result(receipts)\n"
        "            answers = []\n            journal.commit()\n        except",
        tests=(f"{READERS}::test_after_a_full_disk_events_are_taken_again_and_after_a_failed_fsync_none",),
    ),
    Mutant(
        bug=23,
        name="events-of-a-journal-that-are-gone-are-passed-over",
        file=STREAM,
        find="            raise InputLost(\n",
        replace="            return found.extent.first\n            raise InputLost(\n",
        tests=(f"{SOURCE}::test_events_that_are_gone_are_an_error_with_their_number",),
    ),
    Mutant(
        bug=26,
        name="a-query-begins-elsewhere-when-spark-asks-again",
        file=STREAM,
        find="        if known is None:\n            known = Registration(",
        replace="        if known is None or self._settings.begins_at_end:\n            known = Registration(",
        tests=(f"{SOURCE}::test_a_query_begins_with_the_first_event_or_behind_the_last",),
    ),
    Mutant(
        bug=26,
        name="a-copy-of-a-journal-is-read-beside-it",
        file=STREAM,
        find="            if extent.journal_id in found:\n",
        replace="            if extent.journal_id in ():\n",
        tests=(f"{SOURCE}::test_a_copy_of_a_journal_is_not_read_beside_it",),
    ),
    Mutant(
        bug=26,
        name="a-pipeline-releases-more-than-is-published",
        file="src/penstock/source/journal/journals.py",
        find="_release(settings, home, extent.journal_id, needed[extent.journal_id])",
        replace="_release(settings, home, extent.journal_id, extent.next)",
        tests=(f"{SOURCE}::test_what_is_published_is_released_and_lag_is_counted",),
    ),
    Mutant(
        bug=26,
        name="a-receiver-lets-everybody-in",
        file="src/penstock/receive/http.py",
        find="        return not self._expected or any(",
        replace="        return True or any(",
        tests=(f"{RECEIVER}::test_only_who_shows_the_token_or_the_password_gets_in_and_tls_hides_it",),
    ),
    Mutant(
        bug=26,
        name="a-line-is-answered-before-it-is-durable",
        file="src/penstock/receive/tcp.py",
        find="        [receipt] = await receipts\n",
        replace="        receipts.cancel()\n        return b'OK 0\\n'\n        [receipt] = await receipts\n",
        tests=(f"{RECEIVER}::test_lines_are_answered_in_order_once_they_are_durable",),
    ),
)
