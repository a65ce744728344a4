"""Bugs planted in what a start and the commands make of ledger, checkpoint and settings."""

from tests.mutation.mutant import Mutant

APPEND = "src/penstock/commit/append.py"
CONTINUATION = "src/penstock/run/continuation.py"
OPEN_DELIVERY = "src/penstock/run/open_delivery.py"
QUERY = "src/penstock/run/query.py"

OF_DELIVERY = "tests/unit/test_run_delivery.py"
OF_OPERATIONS = "tests/unit/test_run_operations.py"
OF_QUERY = "tests/unit/test_run_query.py"
OF_SELECTION = "tests/spark/test_selection.py"
OF_TRIES = "tests/unit/test_commit_tries.py"

MUTANTS_OF_RUN = (
    Mutant(
        bug=37,
        name="an-adoption-takes-the-sources-in-the-order-of-the-file",
        file=CONTINUATION,
        find="if is_renamed or not decided else decided\n",
        replace="\n",
        tests=(f"{OF_OPERATIONS}::test_adopting_takes_the_sources_in_the_order_of_the_query_not_of_the_file",),
    ),
    Mutant(
        bug=37,
        name="a-source-that-is-read-twice-is-in-the-way-of-an-adoption",
        file=CONTINUATION,
        find="    with suppress(SourcesChanged):\n",
        replace="    with suppress(CheckpointMissing):\n",
        tests=(f"{OF_OPERATIONS}::test_the_checkpoint_of_a_query_that_reads_a_source_twice_can_be_adopted",),
    ),
    Mutant(
        bug=37,
        name="an-adoption-does-not-say-that-the-checkpoint-is-of-another-query",
        file=CONTINUATION,
        find="    if position.query_id != summary.query_id:\n        runtime.checkpoint.offsets(",
        replace="    if False:\n        runtime.checkpoint.offsets(",
        tests=(f"{OF_OPERATIONS}::test_the_checkpoint_of_a_query_that_reads_a_source_twice_can_be_adopted",),
    ),
    Mutant(
        bug=43,
        name="a-predicate-of-chance-is-drawn-anew-for-each-column",
        file="src/penstock/transform/selection.py",
        find="        if random:  # a predicate is computed once for each column of the row\n",
        replace="        if False:\n",
        tests=(f"{OF_SELECTION}::test_what_makes_no_sense_is_told_before_anything_is_written",),
    ),
    Mutant(
        bug=43,
        name="chance-in-the-rows-of-the-transform-is-taken-for-chance-in-the-predicate",
        file="src/penstock/transform/selection.py",
        find="set(random_in(plan_of(computed)))",
        replace="{name for node in plan_of(computed).walk() for name in random_in(node)}",
        tests=(f"{OF_SELECTION}::test_chance_in_the_transform_is_refused_nowhere",),
    ),
    Mutant(
        bug=17,
        name="a-route-of-chance-is-accepted",
        file="src/penstock/run/required_guarantees.py",
        find="            _require_same_account(frame.selectExpr(sink.route_sql), sink)\n",
        replace="            _ = frame.selectExpr(sink.route_sql).schema\n",
        tests=(f"{OF_SELECTION}::test_a_route_of_chance_is_refused",),
    ),
    Mutant(
        bug=14,
        name="a-ledger-that-is-opened-for-each-batch-is-never-pruned",
        file="src/penstock/commit/upkeep.py",
        find="(tail // self._every > previous // self._every and tail > self._retained)",
        replace="(tail % self._every == 0 and tail > self._retained)",
        tests=("tests/unit/test_commit_coordinator.py::test_a_ledger_is_pruned_also_where_each_run_delivers_one_batch",),
    ),
    Mutant(
        bug=37,
        name="after-an-adoption-the-ledger-is-called-empty",
        file="src/penstock/commit/identity.py",
        find="is_adopted=summary.adopted_at is not None",
        replace="is_adopted=False",
        tests=(f"{OF_OPERATIONS}::test_after_a_new_checkpoint_was_adopted_nothing_calls_the_ledger_empty",),
    ),
    Mutant(
        bug=37,
        name="a-batch-that-never-comes-is-to-be-waited-for",
        file="src/penstock/commit/as_of.py",
        find="    if is_to_come and not _is_before_adoption(ledger, adopted_at, batch_id):\n",
        replace="    if is_to_come:\n",
        tests=("tests/unit/test_read.py::test_a_batch_of_before_an_accepted_gap_is_not_told_to_come",),
    ),
    Mutant(
        bug=51,
        name="a-sink-that-does-not-answer-is-a-failure-that-a-person-must-mend",
        file="src/penstock/commit/coordinator.py",
        find="            waiting = NotPublishedYet(\n",
        replace="            waiting = Failed(\n",
        tests=(f"{OF_TRIES}::test_a_sink_that_did_not_answer_is_to_be_tried_again_by_the_next_start",),
    ),
    Mutant(
        bug=51,
        name="five-tries-end-within-three-seconds",
        file=APPEND,
        find="        return state.attempt_number > 1 and (spent_s",
        replace="        return state.attempt_number >= 5 or (spent_s",
        tests=(f"{OF_TRIES}::test_an_outage_is_waited_for_a_minute_with_growing_pauses",),
    ),
    Mutant(
        bug=10,
        name="what-took-all-the-time-is-not-looked-for-once-its-answer-was-lost",
        file=APPEND,
        find="state.attempt_number > 1 and",
        replace="state.attempt_number > 0 and",
        tests=(f"{OF_TRIES}::test_what_took_all_the_time_is_tried_once_more",),
    ),
    Mutant(
        bug=51,
        name="a-sink-that-has-waited-for-minutes-is-asked-again",
        file=APPEND,
        find=" and not isinstance(error, NotPublishedYet)",
        replace="",
        tests=(f"{OF_TRIES}::test_a_sink_that_has_waited_by_itself_is_not_asked_again",),
    ),
    Mutant(
        bug=51,
        name="a-sink-that-does-not-answer-counts-as-least-urgent-of-all",
        file="src/penstock/support/combined_error.py",
        find="        isinstance(error, NotPublishedYet),\n",
        replace="        False,\n",
        tests=("tests/unit/test_publication_errors.py::test_the_class_is_that_of_the_error_to_act_on_first",),
    ),
    Mutant(
        bug=51,
        name="a-stop-signal-waits-until-a-start-has-tried-for-a-minute",
        file=OPEN_DELIVERY,
        find="        return self._stopping.is_set() or self._stop_wanted()",
        replace="        return self._stopping.is_set()",
        tests=(f"{OF_DELIVERY}::test_a_stop_signal_ends_the_tries_of_a_start",),
    ),
    Mutant(
        bug=51,
        name="a-stop-waits-until-a-batch-was-tried-for-a-minute",
        file=OPEN_DELIVERY,
        find="        self._stopping.set()\n        self._drain.set()\n",
        replace="        self._drain.set()\n",
        tests=(f"{OF_DELIVERY}::test_a_stop_ends_a_pause_between_two_tries",),
    ),
    Mutant(
        bug=51,
        name="a-fenced-run-waits-for-a-sink-that-does-not-answer",
        file=QUERY,
        find="            self._delivery.failure = fenced\n            self._end_tries()\n",
        replace="            self._delivery.failure = fenced\n",
        tests=(f"{OF_QUERY}::test_a_run_that_is_fenced_lets_go_of_a_sink_that_does_not_answer",),
    ),
    Mutant(
        bug=51,
        name="a-run-that-waits-for-a-sink-ends-well-when-it-is-stopped",
        file=QUERY,
        find="        if interrupted and not isinstance(self._delivery.failure, NotPublishedYet):",
        replace="        if interrupted:",
        tests=(f"{OF_QUERY}::test_a_stop_hides_no_batch_that_waits_for_a_sink",),
    ),
    Mutant(
        bug=51,
        name="a-run-without-java-waits-until-a-batch-was-tried-for-a-minute",
        file=QUERY,
        find="            self._end_tries()\n            raise Retryable(\n",
        replace="            raise Retryable(\n",
        tests=(f"{OF_QUERY}::test_where_java_dies_a_batch_is_not_tried_for_long_any_more",),
    ),
    Mutant(
        bug=51,
        name="a-recovery-goes-on-with-its-tries-after-ctrl-c",
        file="src/penstock/run/operations.py",
        find="        stopping.set()\n",
        replace="        pass\n",
        tests=(f"{OF_OPERATIONS}::test_ctrl_c_ends_the_tries_of_a_recovery",),
    ),
    Mutant(
        bug=51,
        name="the-settings-say-how-long-and-nobody-listens",
        file="src/penstock/run/assembly.py",
        find="        retry_timeout_s=plan.settings.retry_timeout / 1000,\n",
        replace="",
        tests=(f"{OF_DELIVERY}::test_a_run_is_tried_as_long_as_the_settings_say",),
    ),
    Mutant(
        bug=51,
        name="what-a-person-must-mend-is-tried-for-a-minute",
        file=APPEND,
        find="    return isinstance(error, Retryable) and not",
        replace="    return isinstance(error, Exception) and not",
        tests=(f"{OF_TRIES}::test_what_a_person_must_mend_is_tried_once",),
    ),
    Mutant(
        bug=51,
        name="a-store-that-does-not-answer-a-task-is-a-failure-that-a-person-must-mend",
        file="src/penstock/blob/object_file.py",
        find="    except Retryable as error:",
        replace="    except OSError as error:",
        tests=("tests/conformance/test_spool_places.py::test_a_store_that_cannot_be_asked_is_told_as_it_says",),
    ),
    Mutant(
        bug=51,
        name="an-outage-that-a-users-code-tells-of-is-a-failure-at-a-start",
        file="src/penstock/sink/own/sink.py",
        find="            raise (Retryable if is_away else kind)(",
        replace="            raise kind(",
        tests=("tests/conformance/test_own_sinks.py::test_a_target_that_does_not_answer_a_start_is_to_be_tried_again",),
    ),
)
