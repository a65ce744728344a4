"""Bugs planted where a journal's readers register: what they need is removed, or a batch reads less than it read before."""

from tests.mutation.mutant import Mutant

JOURNAL = "src/penstock/journal/journal.py"
STREAM = "src/penstock/source/journal/stream.py"
REGISTERING = "src/penstock/journal/registering.py"
SOURCE = "tests/unit/test_journal_source.py"
READERS = "tests/unit/test_journal_readers.py"

MUTANTS_OF_JOURNAL_READERS = (
    Mutant(
        bug=23,
        name="a-first-batch-that-comes-again-begins-where-its-reader-is-now",
        file=STREAM,
        find="    return reach.begin if before is None or before.begin != reach.begin else before.next\n",
        replace="    return reach.begin if before is None else before.next\n",
        tests=(f"{SOURCE}::test_a_first_batch_is_the_same_after_its_reader_went_on[False]",),
    ),
    Mutant(
        bug=23,
        name="a-reader-that-its-journal-does-not-know-stays-unknown",
        file=STREAM,
        find="            if self._hold(reached, journals):\n                journals = self._look()\n",
        replace="",
        tests=(f"{SOURCE}::test_a_reader_that_is_set_back_holds_what_it_needs[advance]",),
    ),
    Mutant(
        bug=23,
        name="a-batch-that-comes-again-is-not-held",
        file=STREAM,
        find="        self._held(found, needed=first, planned=end)\n",
        replace="",
        tests=(f"{SOURCE}::test_a_reader_that_is_set_back_holds_what_it_needs[planned]",),
    ),
    Mutant(
        bug=23,
        name="a-journal-is-not-looked-at-again-after-registering",
        file=STREAM,
        find="            if self._hold(reached, journals):\n                journals",
        replace="            if not self._hold(reached, journals):\n                journals",
        tests=(f"{SOURCE}::test_a_reader_that_is_set_back_too_late_is_told",),
    ),
    Mutant(
        bug=23,
        name="a-late-reader-begins-with-what-was-removed-meanwhile",
        file=REGISTERING,
        find="        found = JournalReader(self.storage, home).extent() or extent",
        replace="        found = extent",
        tests=(f"{SOURCE}::test_a_reader_that_registers_late_begins_with_what_is_there",),
    ),
    Mutant(
        bug=23,
        name="segments-go-while-a-reader-registers",
        file=JOURNAL,
        find="        with self._explained(), settled(self._storage, self._home):\n            needed",
        replace="        with self._explained():\n            needed",
        tests=(f"{READERS}::test_nothing_is_removed_while_a_reader_registers",),
    ),
    Mutant(
        bug=23,
        name="latest-skips-a-journal-that-comes-later",
        file=STREAM,
        find="            begin = found.journal.begin(self._settings.reader, found.extent, at_end=False)\n",
        replace="            begin = found.journal.begin(\n"
        "                self._settings.reader, found.extent, at_end=self._settings.begins_at_end\n            )\n",
        tests=(f"{SOURCE}::test_what_comes_while_a_query_runs_is_read_from_its_first_event",),
    ),
    Mutant(
        bug=23,
        name="latest-counts-whenever-spark-asks",
        file=STREAM,
        find="            self._has_begun = True\n",
        replace="",
        tests=(f"{SOURCE}::test_what_comes_while_a_query_runs_is_read_from_its_first_event",),
    ),
    Mutant(
        bug=23,
        name="latest-counts-again-after-a-stop",
        file=STREAM,
        find="not self._has_begun and not any(self._is_registered(each) for each in journals.values())",
        replace="not self._has_begun",
        tests=(f"{SOURCE}::test_a_query_that_was_stopped_before_its_first_batch_has_begun",),
    ),
    Mutant(
        bug=26,
        name="an-older-journal-is-read-on",
        file=REGISTERING,
        find="        if known.planned < planned:\n",
        replace="        if known.planned < 0:\n",
        tests=(
            f"{SOURCE}::test_an_older_journal_is_told_also_when_it_has_grown[True]",
            f"{SOURCE}::test_an_older_journal_is_told_also_when_it_has_grown[False]",
        ),
    ),
    Mutant(
        bug=26,
        name="how-far-a-batch-reads-is-not-on-the-disk",
        file=STREAM,
        find="                found.journal.plan(self._settings.reader, found.extent, end=end)  # before Spark notes the batch\n",
        replace="",
        tests=(f"{SOURCE}::test_how_far_a_batch_reads_is_on_the_disk_before_it_is_planned",),
    ),
    Mutant(
        bug=26,
        name="numbers-that-were-planned-and-not-released-are-given-away-again",
        file=JOURNAL,
        find="            if each.planned > self._next:\n",
        replace="            if each.next > self._next:\n",
        tests=(f"{SOURCE}::test_numbers_that_a_reader_planned_are_not_given_away_again",),
    ),
    Mutant(
        bug=26,
        name="a-directory-with-the-name-of-a-pattern-is-not-found",
        file="src/penstock/source/journal/settings.py",
        find="{self.pattern, *glob.glob(self.pattern)}",
        replace="{*glob.glob(self.pattern)}",
        tests=(f"{SOURCE}::test_a_directory_may_have_the_name_of_a_pattern",),
    ),
    Mutant(
        bug=23,
        name="a-lost-answer-hides-that-a-journal-must-be-looked-at-again",
        file="src/penstock/source/journal/remote.py",
        find="        return changed or tries > 1",
        replace="        return changed",
        tests=("tests/unit/test_journal_over_http.py::test_a_change_of_which_the_answer_was_lost_is_looked_at",),
    ),
    Mutant(
        bug=26,
        name="a-damaged-answer-ends-what-is-read",
        file="src/penstock/journal/wire.py",
        find="        except BadFrame as bad:\n            raise",
        replace="        except BadFrame as bad:\n            return\n            raise",
        tests=("tests/unit/test_journal_over_http.py::test_a_damaged_answer_is_asked_for_again",),
    ),
    Mutant(
        bug=26,
        name="a-reader-over-http-plans-what-is-not-there",
        file="src/penstock/receive/read_endpoint.py",
        find='end=min(number_in(asked, "end"), extent.next))',
        replace='end=number_in(asked, "end"))',
        tests=("tests/unit/test_journal_over_http.py::test_a_reader_plans_and_releases_only_what_is_there",),
    ),
    Mutant(
        bug=26,
        name="an-id-is-recent-before-its-message-is-durable",
        file="src/penstock/receive/amqp.py",
        find="            if self._is_recent(each):\n",
        replace="            if each.message_id is not None:\n",
        tests=("tests/unit/test_receive_amqp.py::test_a_twin_of_a_message_that_was_not_taken_goes_back_too",),
    ),
    Mutant(
        bug=26,
        name="ids-are-forgotten-when-the-receiver-ends",
        file="src/penstock/receive/recent_ids.py",
        find="            found.add(message_id)\n",
        replace="            pass\n",
        tests=("tests/unit/test_receive_amqp.py::test_messages_with_ids_of_their_own_are_recognised_after_a_restart",),
    ),
)
