"""Bugs planted in the coordinator and around it: recognise, decide, publish, recover."""

from tests.mutation.mutant import Mutant

APPEND = "src/penstock/commit/append.py"
COORDINATOR = "src/penstock/commit/coordinator.py"
DELIVERY = "src/penstock/run/delivery.py"
IDENTITY = "src/penstock/commit/identity.py"
MODEL = "src/penstock/core/model.py"
OPEN_DELIVERY = "src/penstock/run/open_delivery.py"
PARTS = "src/penstock/run/runtime.py"

OF_COORDINATOR = "tests/unit/test_commit_coordinator.py"
OF_DELIVERY = "tests/unit/test_run_delivery.py"
OF_IDENTITY = "tests/unit/test_commit_identity.py"
OF_LOG_LEDGER = "tests/unit/test_ledger_log.py"

PRESENCE = "src/penstock/run/ledger_match.py"
SUMMARY = "src/penstock/commit/summary.py"

OF_PRESENCE = "tests/unit/test_ledger_match.py"

MUTANTS_OF_COMMIT = (
    Mutant(
        bug=24,
        name="what-a-kill-left-of-sparks-first-offsets-ends-every-start",
        file=OPEN_DELIVERY,
        find="            remove_unwritten_start(self._runtime.checkpoint)\n",
        replace="            pass\n",
        tests=(f"{OF_DELIVERY}::test_a_start_removes_what_a_kill_left_of_sparks_first_offsets",),
    ),
    Mutant(
        bug=37,
        name="a-checkpoint-with-decisions-is-to-be-removed",
        file="src/penstock/run/continuation.py",
        find="    if isinstance(error, CheckpointDamaged | CheckpointMissing) and summary.next_batch_id is None:",
        replace="    if isinstance(error, CheckpointDamaged | CheckpointMissing):",
        tests=(
            "tests/spark/test_delivery_failure.py::test_what_was_torn_of_input_that_is_in_no_batch_is_removed_as_the_error_says",
        ),
    ),
    Mutant(
        bug=37,
        name="input-that-a-batch-reads-is-to-be-removed",
        file="src/penstock/checkpoint/source_log.py",
        find="and last is not None and log_id > last",
        replace="and True",
        tests=("tests/unit/test_checkpoint_torn_sources.py::test_input_that_a_batch_reads_comes_from_a_copy",),
    ),
    Mutant(
        bug=31,
        name="a-marker-of-another-ledger-is-compared-by-its-position-only",
        file=PRESENCE,
        find="    if mark.ledger_id is not None and mark.ledger_id != identity_of(tail):\n",
        replace="    if False:\n",
        tests=(f"{OF_PRESENCE}::test_a_marker_that_names_another_ledger_is_refused",),
    ),
    Mutant(
        bug=31,
        name="a-marker-without-identity-is-anybodys",
        file=PRESENCE,
        find="    if mark.batch_id is None or entry is None:\n        return None\n",
        replace="    return None\n",
        tests=(f"{OF_PRESENCE}::test_a_marker_that_names_no_ledger_belongs_to_the_one_that_decided_its_batch",),
    ),
    Mutant(
        bug=31,
        name="places-are-claimed-when-they-are-published-into-and-not-before",
        file=COORDINATOR,
        find="            self._claim_places([sink for sink in self._sinks if sink.name not in self._staged_without])\n",
        replace="",
        tests=("tests/live/test_parquet_ownership.py::test_another_ledger_sweeps_nothing_of_an_account",),
    ),
    Mutant(
        bug=31,
        name="every-opening-gives-the-ledger-another-identity",
        file=SUMMARY,
        find="    return before if before.ledger_id is not None else replace(before, ledger_id=new_ledger_id())",
        replace="    return replace(before, ledger_id=new_ledger_id())",
        tests=(f"{OF_PRESENCE}::test_a_ledger_gets_its_identity_at_its_beginning_and_keeps_it",),
    ),
    Mutant(
        bug=1,
        name="a-decided-batch-counts-as-new",
        file=IDENTITY,
        find="    return _the_same(batch, decision_of(batch.batch_id))",
        replace="    return None",
    ),
    Mutant(
        bug=1,
        name="a-decided-batch-is-recognised-and-delivered-all-the-same",
        file=COORDINATOR,
        find="            if decision is None:\n                require_repeated(",
        replace="            if True:\n                require_repeated(",
    ),
    Mutant(
        bug=1,
        name="the-next-batch-is-decided-while-the-last-one-is-being-published",
        file=COORDINATOR,
        find="        self._join()\n        decision = Decision(",
        replace="        decision = Decision(",
    ),
    Mutant(
        bug=1,
        name="who-waits-for-a-publication-takes-its-failure-from-the-next-batch",
        file="src/penstock/commit/executor.py",
        find="            if self._join is not None:\n                self._join()\n                self._join = None\n",
        replace="            join, self._join = self._join, None\n            if join is not None:\n                join()\n",
        tests=("tests/unit/test_commit_deferred.py::test_somebody_else_may_wait_while_the_next_batch_begins",),
    ),
    Mutant(
        bug=1,
        name="a-query-that-is-stopped-does-not-wait-for-the-publication-beside-it",
        file=OPEN_DELIVERY,
        find="        try:\n            self.coordinator.wait()\n            self.coordinator.sweep()",
        replace="        try:\n            self.coordinator.sweep()",
        tests=("tests/spark/test_publish_behind.py::test_a_failure_of_the_last_batch_is_raised_by_who_awaits_the_query",),
    ),
    Mutant(
        bug=2,
        name="a-known-number-is-a-known-batch",
        file=IDENTITY,
        find="if _by_source(decided.batch) != _by_source(batch):",
        replace="if decided.batch.batch_id != batch.batch_id:",
        tests=(f"{OF_IDENTITY}::test_a_known_number_with_other_offsets_is_refused",),
    ),
    Mutant(
        bug=2,
        name="a-lower-number-is-a-known-batch-of-any-query",
        file=IDENTITY,
        find="    if batch.query_id != summary.query_id:\n",
        replace="""\
    if batch.batch_id < expected:
        return decision_of(batch.batch_id)
    if batch.query_id != summary.query_id:
""",
    ),
    Mutant(
        bug=2,
        name="the-next-number-is-the-next-batch-wherever-it-starts",
        file=IDENTITY,
        find="ended[source] != starts[source] if source in ended",
        replace="False if source in ended",
        tests=(f"{OF_IDENTITY}::test_a_new_batch_that_does_not_adjoin_the_last_one_is_refused",),
    ),
    Mutant(
        bug=2,
        name="files-are-known-by-their-index",
        file="src/penstock/checkpoint/spark_checkpoint.py",
        find="content = self._content(place.folder, first, last)",
        replace="content = None",
        tests=("tests/unit/test_checkpoint_batch.py::test_other_input_is_another_batch",),
    ),
    Mutant(
        bug=3,
        name="the-query-id-is-not-compared",
        file=IDENTITY,
        find="if batch.query_id != summary.query_id:",
        replace="if not batch.query_id:",
    ),
    Mutant(
        bug=4,
        name="a-decision-older-than-fifteen-minutes-is-given-up",
        file=COORDINATOR,
        find="""\
        if self._newest is None:
            return {}
        require_sinks_of(self._newest, self._sinks, self.summary)
""",
        replace="""\
        if self._newest is None or self._now_ms() - self._newest.written_at_ms > 900_000:
            return {}
        require_sinks_of(self._newest, self._sinks, self.summary)
""",
        tests=("tests/unit/test_commit_clock.py",),
    ),
    Mutant(
        bug=4,
        name="the-sweep-takes-what-the-newest-decision-names",
        file="src/penstock/commit/publication.py",
        find="kept=frozenset(piece.attempt for entry in kept for piece in decision_in(entry).staged),",
        replace="kept=frozenset(),",
        tests=(f"{OF_COORDINATOR}::test_the_sweep_is_told_what_is_dead",),
    ),
    Mutant(
        bug=5,
        name="a-coordinator-that-raised-is-used-on",
        file=COORDINATOR,
        find="        except BaseException:\n            self._spent = True\n            raise\n",
        replace="        except BaseException:\n            raise\n",
        tests=(f"{OF_COORDINATOR}::test_whoever_raised_is_spent",),
    ),
    Mutant(
        bug=5,
        name="a-delivery-that-raised-is-used-on",
        file=DELIVERY,
        find="                if self._failure is None:\n                    opened",
        replace="                if True:\n                    opened",
        tests=(f"{OF_DELIVERY}::test_a_delivery_that_failed_goes_on_failing",),
    ),
    Mutant(
        bug=5,
        name="a-batch-does-not-wait-for-that-of-an-earlier-query",
        file=DELIVERY,
        find="        with self._turn:\n            try:",
        replace="        if True:\n            try:",
        tests=(f"{OF_DELIVERY}::test_a_batch_that_its_query_left_running_is_not_cut_off_by_the_next_query",),
    ),
    Mutant(
        bug=5,
        name="every-query-of-a-delivery-shares-its-end",
        file=DELIVERY,
        find="self._started, Delivery.of_plan(replace(self.plan, left=None))\n",
        replace="self._started, self\n",
        tests=("tests/spark/test_doors.py::test_the_end_of_an_older_query_of_a_delivery_is_not_the_end_of_the_newer",),
    ),
    Mutant(
        bug=6,
        name="opening-does-not-publish-what-is-decided",
        file=COORDINATOR,
        find="            published = self._publish_newest()  # I1\n",
        replace="            published: dict[SinkName, Published] = {}\n",
    ),
    Mutant(
        bug=6,
        name="opening-does-not-fence",
        file=COORDINATOR,
        find="Generation(before + 1 if new_generation else before)",
        replace="Generation(max(before, 1))",
    ),
    Mutant(
        bug=6,
        name="the-next-batch-does-not-wait-for-a-sink-that-failed",
        file="src/penstock/commit/executor.py",
        find="""\
    if failures:
        raise _unpublished(batch_id, failures)
""",
        replace="",
    ),
    Mutant(
        bug=8,
        name="an-append-that-found-its-position-taken-takes-the-next-one",
        file=COORDINATOR,
        find="            raise fenced_by(taken, generation=entry.generation, position=entry.position)  # I9\n        self._tail",
        replace="""\
            return self._append(replace(entry, position=Position(entry.position + 1)), within=within)
        self._tail""",
    ),
    Mutant(
        bug=10,
        name="the-own-entry-is-taken-for-another-run's",
        file=APPEND,
        find="return None if found is not None and found.nonce == entry.nonce else Occupied(found)",
        replace="return Occupied(found)",
    ),
    Mutant(
        bug=10,
        name="another-run's-entry-is-taken-for-the-own",
        file=APPEND,
        find="return None if found is not None and found.nonce == entry.nonce else Occupied(found)",
        replace="return None if found is not None else Occupied(found)",
    ),
    Mutant(
        bug=10,
        name="an-append-of-unknown-outcome-is-taken-for-done",
        file=APPEND,
        find="""\
        if found is None:
            raise
""",
        replace="""\
        if found is None:
            return None
""",
        tests=(f"{OF_LOG_LEDGER}::test_a_lost_answer_ends_with_one_entry_and_no_failure",),
    ),
    Mutant(
        bug=11,
        name="a-start-does-not-prove-its-ledger",
        file=PARTS,
        find="    runtime.ledger.prove()\n",
        replace="",
        tests=(f"{OF_DELIVERY}::test_a_start_on_a_ledger_that_ignores_conditions_is_refused",),
    ),
    Mutant(
        bug=1,
        name="a-ledger-behind-its-sinks-goes-on",
        file=PARTS,
        find="    require_decided(runtime.ledger, sinks, pipeline=runtime.pipeline, markers=markers)\n",
        replace="",
        tests=("tests/unit/test_ledger_match.py",),
    ),
    Mutant(
        bug=1,
        name="what-another-driver-publishes-meanwhile-is-taken-for-a-loss",
        file="src/penstock/run/ledger_match.py",
        find="                tail = ledger.tail()  # a run",
        replace="                pass  # a run",
        tests=("tests/unit/test_ledger_match.py",),
    ),
    Mutant(
        bug=12,
        name="staging-is-deleted-after-an-append-of-unknown-outcome",
        file=COORDINATOR,
        find="        taken = append_once(self._ledger, entry, within=within, retrying=self._retrying)\n",
        replace="""\
        try:
            taken = append_once(self._ledger, entry, within=within, retrying=self._retrying)
        except Retryable:
            from penstock.commit.publication import dead_staging

            cut = replace(dead_staging(self._open_tail(), None), generation=Generation(entry.generation + 1))
            for sink in self._sinks:
                sink.sweep(cut, dry_run=False)
            raise
""",
        tests=(f"{OF_COORDINATOR}::test_nothing_is_collected_on_the_way_out_of_an_error",),
    ),
    Mutant(
        bug=2,
        name="what-is-adopted-is-judged-before-the-fence",
        file="src/penstock/run/operations.py",
        find="        adoption = plan_adoption(runtime, coordinator.summary, txn_app_id)",
        replace="        pass",
        tests=("tests/unit/test_run_operations.py::test_adopting_beside_a_run_that_goes_on_adopts_nothing_that_it_delivered",),
    ),
    Mutant(
        bug=12,
        name="a-sweep-by-hand-deletes-what-is-decided",
        file="src/penstock/run/operations.py",
        find="cut = dead_staging(tail, newest_decision(runtime.ledger, tail), waiting=waiting)",
        replace="cut = dead_staging(tail, None)",
        tests=("tests/unit/test_run_operations.py::test_sweeping_beside_a_decision_that_is_not_published_takes_nothing_of_it",),
    ),
    Mutant(
        bug=13,
        name="a-batch-that-could-not-be-published-is-aborted",
        file=COORDINATOR,
        find="        published = all_published(delivered.batch.batch_id, sinks, outcomes)\n",
        replace="""\
        if any(isinstance(outcome, PenstockError) for outcome in outcomes):
            from penstock.commit.publication import dead_staging

            cut = replace(dead_staging(self._newest, None), generation=Generation(self._newest.generation + 1))
            for sink in sinks:
                sink.sweep(cut, dry_run=False)
        published = all_published(delivered.batch.batch_id, sinks, outcomes)
""",
    ),
    Mutant(
        bug=14,
        name="opening-does-not-sweep",
        file=COORDINATOR,
        find="        swept, warnings = self.sweep()  # I10\n        return Recovered(",
        replace="        swept, warnings = (), ()\n        return Recovered(",
    ),
    Mutant(
        bug=14,
        name="what-an-older-generation-staged-is-kept",
        file=MODEL,
        find="""\
        if attempt.generation < self.generation:
            return True
""",
        replace="",
    ),
    Mutant(
        bug=18,
        name="two-attempts-have-one-name",
        file=MODEL,
        find='-t{self.task_attempt}-{self.nonce}"',
        replace="-t0-{'0' * 16}\"",
    ),
    Mutant(
        bug=19,
        name="a-batch-is-shown-before-it-is-decided",
        file=COORDINATOR,
        find="            self._append(entry, within=ledger_transaction.within)",
        replace="""\
            self._newest = entry
            list(map(self._publishing(), self._sinks))
            self._append(entry, within=ledger_transaction.within)""",
    ),
    Mutant(
        bug=24,
        name="a-hole-of-one-entry-is-passed-over",
        file="src/penstock/checkpoint/log_reading.py",
        find="if after > before + 1:",
        replace="if after > before + 2:",
        tests=("tests/unit/test_checkpoint_inspection.py::test_damage",),
    ),
    Mutant(
        bug=25,
        name="an-exit-leaves-the-batch-as-it-is",
        file=DELIVERY,
        find="except BaseException as cause:",
        replace="except Exception as cause:",
        tests=(f"{OF_DELIVERY}::test_whatever_is_raised_becomes_a_failed_batch",),
    ),
    Mutant(
        bug=28,
        name="a-replayed-batch-does-not-run-for-its-state",
        file=OPEN_DELIVERY,
        find="        if self._runtime.checkpoint.has_state():\n            self._stager.compute_state",
        replace="        if not self._runtime.checkpoint.has_state():\n            self._stager.compute_state",
        tests=("tests/spark/test_delivery_stateful.py::test_deduplication_survives_a_replay_whose_state_was_lost",),
    ),
    Mutant(
        bug=41,
        name="only-the-first-sink-that-fails-is-told",
        file="src/penstock/commit/executor.py",
        find="    if others:\n",
        replace="    if not first:\n",
        tests=("tests/unit/test_publication_errors.py::test_both_sinks_are_named_with_their_errors",),
    ),
    Mutant(
        bug=41,
        name="the-error-of-several-sinks-has-the-class-of-any-of-them",
        file="src/penstock/support/combined_error.py",
        find="    return next((at for at, holds in enumerate(order) if holds), len(order))",
        replace="    return -next((at for at, holds in enumerate(order) if holds), len(order))",
        tests=("tests/unit/test_publication_errors.py::test_the_class_is_that_of_the_error_to_act_on_first",),
    ),
    Mutant(
        bug=35,
        name="a-sink-that-took-none-of-the-rows-is-taken-for-one-that-joined-since",
        file="src/penstock/commit/publication.py",
        find="{piece.sink for piece in decision.staged} | decision.schemas.keys()",
        replace="{piece.sink for piece in decision.staged}",
        tests=(
            f"{OF_COORDINATOR}::test_a_start_publishes_to_a_sink_that_took_none_of_the_rows_but_not_to_one_that_joined_since",
        ),
    ),
)
