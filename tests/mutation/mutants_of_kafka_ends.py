"""Bugs planted where the sink of Kafka looks whether its transactions have ended, and ends what brokers forgot."""

from tests.mutation.mutant import Mutant

LANE = "src/penstock/sink/kafka/lane.py"
ENDS = "src/penstock/sink/kafka/lane_ends.py"
ENDING = "src/penstock/kafka/transaction_ends.py"
TRANSACTIONS = "src/penstock/kafka/transactions.py"
TOPICS = "src/penstock/sink/kafka/topics.py"
COLUMNAR = "src/penstock/sink/kafka/columnar_producer.py"

OF_PUBLISHING = "tests/live/test_kafka_publish.py"
OF_FORGOTTEN = "tests/live/test_kafka_forgotten.py"
OF_RIGHTS = "tests/live/test_kafka_forgotten_rights.py"
OF_UNSEEN = "tests/live/test_kafka_forgotten_unseen.py"
OF_REFUSALS = "tests/live/test_kafka_refusals.py"
OF_PRODUCERS = "tests/live/test_kafka_producers.py"
OF_LEDGERS = "tests/live/test_kafka_ledgers.py"
OF_HIDDEN = "test_a_start_compares_the_ledger_with_the_marker_that_is_committed_though_readers_do_not_see_it"

MUTANTS_OF_KAFKA_ENDS = (
    Mutant(
        bug=6,
        name="the-next-start-commits-what-a-broker-forgot-to-abort",
        file=LANE,
        find="            self._ends.end_older()\n",
        replace="            pass\n",
        tests=(
            f"{OF_FORGOTTEN}::test_rows_of_an_attempt_that_was_aborted_do_not_appear_beside_those_of_the_next_one[restarted]",
        ),
    ),
    Mutant(
        bug=6,
        name="what-brokers-forgot-is-looked-for-only-before-a-start",
        file=LANE,
        find="self._is_ended = self._ends.are_written(transactions.are_settled)",
        replace="self._is_ended = True",
        tests=(
            f"{OF_FORGOTTEN}::test_rows_that_were_delivered_appear_though_the_next_batch_has_none_in_their_partition[columnar]",
            f"{OF_FORGOTTEN}::test_what_comes_between_the_look_and_the_fence_is_seen",
        ),
    ),
    Mutant(
        bug=6,
        name="between-the-parts-of-a-batch-nobody-looks-what-brokers-forgot",
        file=LANE,
        find="                    self._require_nothing_open()\n",
        replace="",
        tests=(f"{OF_FORGOTTEN}::test_between_the_parts_of_a_large_batch",),
    ),
    Mutant(
        bug=6,
        name="a-commit-that-a-broker-forgot-is-ended-as-aborted",
        file=ENDS,
        find="                write_end(admin, at, one, committed=True)",
        replace="                write_end(admin, at, one, committed=False)",
        tests=(f"{OF_FORGOTTEN}::test_rows_that_were_delivered_are_not_lost_by_an_attempt_that_is_aborted[restarted]",),
    ),
    Mutant(
        bug=6,
        name="an-abort-that-a-broker-forgot-is-ended-as-committed",
        file=ENDING,
        find="        committed=False,\n        max_version=_ABORTS_IN,",
        replace="        committed=True,\n        max_version=_ABORTS_IN,",
        tests=(
            f"{OF_FORGOTTEN}::test_rows_of_an_attempt_that_was_aborted_do_not_appear_beside_those_of_the_next_one[restarted]",
        ),
    ),
    Mutant(
        bug=6,
        name="what-nobody-knows-the-end-of-is-aborted",
        file=ENDS,
        find="        if owner.state != ABORTED and not (owner.state == COMMITTED and is_same):",
        replace="        if not owner.state:",
        tests=(f"{OF_FORGOTTEN}::test_what_nobody_knows_is_refused_and_the_remedy_carried_out",),
    ),
    Mutant(
        bug=6,
        name="an-open-transaction-is-left-to-the-client-which-hides-its-outcome",
        file=ENDS,
        find="            fence(admin, self._name, timeout_ms=owner.transaction_timeout_ms)",
        replace="            return",
        tests=(f"{OF_FORGOTTEN}::test_a_transaction_that_a_driver_left_open_is_ended_where_brokers_forgot_that",),
    ),
    Mutant(
        bug=6,
        name="what-brokers-forgot-is-looked-for-in-the-topics-of-today",
        file=ENDS,
        find="        return tuple(dict.fromkeys((*self._wanted.target.every, *(mark.topics if mark is not None else ()))))",
        replace="        return self._wanted.target.every",
        tests=(f"{OF_UNSEEN}::test_in_a_topic_that_is_no_longer_in_the_settings",),
    ),
    Mutant(
        bug=6,
        name="partitions-that-were-added-are-not-looked-at",
        file=ENDS,
        find="        places = self._every_place()\n        wait_s",
        replace='        places = self.__dict__.setdefault("_known", self._every_place())\n        wait_s',
        tests=(f"{OF_UNSEEN}::test_in_a_partition_that_was_added_a_moment_ago",),
    ),
    Mutant(
        bug=6,
        name="the-end-of-one-transaction-is-taken-for-that-of-an-earlier-one",
        file=ENDS,
        find="        is_same = all(one.producer_epoch == owner.producer_epoch for one in found.values())",
        replace="        is_same = True",
        tests=(f"{OF_UNSEEN}::test_of_an_earlier_producer_than_that_whose_end_is_known",),
    ),
    Mutant(
        bug=6,
        name="a-topic-that-brokers-do-not-show-has-no-open-transaction",
        file=TOPICS,
        find="and is_forbidden(error)):\n                raise error\n",
        replace="and is_forbidden(error)):\n                continue\n",
        tests=(f"{OF_RIGHTS}::test_a_topic_that_the_user_may_not_see_is_not_one_without_partitions",),
    ),
    Mutant(
        bug=6,
        name="a-start-does-not-wait-until-its-coordinator-has-ended-a-transaction",
        file=ENDS,
        find="            elif owner.state not in ENDING:\n                raise\n            return True",
        replace="            return False",
        tests=(f"{OF_RIGHTS}::test_who_may_not_see_it_leaves_what_is_being_ended_to_its_coordinator",),
    ),
    Mutant(
        bug=6,
        name="a-start-that-cannot-ask-hides-how-a-transaction-ended",
        file=ENDS,
        find="            if not self._is_settled(wait_s=self._wanted.timeout_ms / 1000 + _ENDED_S):\n                raise",
        replace="            pass",
        tests=(f"{OF_FORGOTTEN}::test_over_a_connection_that_cannot_ask_what_a_driver_left_open_is_ended",),
    ),
    Mutant(
        bug=6,
        name="a-hand-ends-whatever-a-producer-has-open",
        file=TRANSACTIONS,
        find="    if found is None or found.current_transaction_start_offset != one.offset:",
        replace="    if found is None:",
        tests=(f"{OF_UNSEEN}::test_a_hand_ends_only_what_it_was_shown",),
    ),
    Mutant(
        bug=6,
        name="a-hand-aborts-what-was-committed",
        file=TRANSACTIONS,
        find="        if owner.state == COMMITTED and owner.producer_epoch == one.producer_epoch:",
        replace="        if False:",
        tests=(f"{OF_UNSEEN}::test_a_hand_does_not_abort_what_its_coordinator_has_as_committed",),
    ),
    Mutant(
        bug=7,
        name="one-answer-of-a-broker-that-starts-ends-the-wait",
        file=ENDS,
        find="        retry=retry_if_result(bool) | retry_if_exception_type(RetriableError),",
        replace="        retry=retry_if_result(bool),",
        tests=(f"{OF_UNSEEN}::test_while_brokers_that_start_answer_with_errors",),
    ),
    Mutant(
        bug=6,
        name="what-only-leaders-have-is-not-looked-at",
        file=ENDS,
        find="                is_open = self._while_true(self._is_older_open",
        replace="                is_open = not self._is_settled(wait_s=0) and self._while_true(self._is_older_open",
        tests=(f"{OF_UNSEEN}::test_where_consumers_do_not_see_it",),
    ),
    Mutant(
        bug=6,
        name="a-hanging-transaction-is-ended-as-by-no-coordinator",
        file=ENDING,
        find="one.producer_epoch, one.coordinator_epoch)",
        replace="one.producer_epoch)",
        tests=("tests/live/test_kafka_transactions.py::test_one_of_a_producer_that_has_ended_others_there_is_ended_too",),
    ),
    Mutant(
        bug=23,
        name="a-client-that-only-looks-creates-a-topic-that-is-gone",
        file="src/penstock/sink/kafka/clients.py",
        find='{**self._given, "allow.auto.create.topics": False, **self._callbacks}',
        replace="{**self._given, **self._callbacks}",
        tests=(f"{OF_REFUSALS}::test_a_topic_that_is_looked_at_is_not_made",),
    ),
    Mutant(
        bug=6,
        name="a-client-goes-on-asking-in-the-name-of-a-leader-from-before",
        file=TOPICS,
        find="        retry=retry_if_exception(lambda cause: code_of(cause) in _OUTDATED),\n",
        replace="        retry=retry_if_exception(lambda cause: False),\n",
        tests=(f"{OF_PUBLISHING}::test_a_client_that_knows_the_leaders_from_before_a_kill_asks_who_leads_now",),
    ),
    Mutant(
        bug=6,
        name="a-producer-that-is-not-answered-says-that-nothing-is-open",
        file=COLUMNAR,
        find="        return both is not None and both[0] == both[1]",
        replace="        return both is None or both[0] == both[1]",
        tests=(f"{OF_PRODUCERS}::test_it_does_not_say_that_nothing_is_open_where_nobody_answers",),
    ),
    Mutant(
        bug=6,
        name="a-producer-looks-only-at-what-is-written",
        file=COLUMNAR,
        find="(c.WRITTEN, c.COMMITTED), timeout",
        replace="(c.WRITTEN, c.WRITTEN), timeout",
        tests=(
            f"{OF_PRODUCERS}::test_it_says_at_once_whether_anything_is_open[columnar]",
            f"{OF_FORGOTTEN}::test_rows_that_were_delivered_appear_though_the_next_batch_has_none_in_their_partition[columnar]",
        ),
    ),
    Mutant(
        bug=6,
        name="a-start-takes-a-marker-that-a-broker-hides-for-lost",
        file=ENDS,
        find="        is_hidden = answers == [True]\n",
        replace="        is_hidden = False\n",
        tests=(f"{OF_FORGOTTEN}::{OF_HIDDEN}[committed]",),
    ),
    Mutant(
        bug=6,
        name="a-start-takes-a-marker-that-was-aborted-for-committed",
        file=ENDS,
        find="return is_same and owner.state in {COMMITTING, COMMITTED}",
        replace="return is_same",
        tests=(f"{OF_FORGOTTEN}::{OF_HIDDEN}[aborted]", f"{OF_FORGOTTEN}::{OF_HIDDEN}[left open]"),
    ),
    Mutant(
        bug=6,
        name="a-start-takes-a-marker-that-is-being-committed-for-lost",
        file=ENDS,
        find="return is_same and owner.state in {COMMITTING, COMMITTED}",
        replace="return is_same and owner.state == COMMITTED",
        tests=(f"{OF_FORGOTTEN}::{OF_HIDDEN}[being committed]",),
    ),
    Mutant(
        bug=6,
        name="a-marker-that-nobody-may-ask-about-counts-as-none",
        file=ENDS,
        find="            if not await_settled(self._clients.admin, markers, wait_s=self._wanted.timeout_ms / 1000 + _ENDED_S):\n"
        "                raise\n",
        replace="            pass\n",
        tests=(f"{OF_FORGOTTEN}::test_a_marker_that_nobody_may_ask_about_is_awaited",),
    ),
    Mutant(
        bug=6,
        name="a-topic-without-rights-that-left-the-settings-stops-every-start",
        file=ENDS,
        find="former={*self._topics} - wanted",
        replace="former=()",
        tests=(f"{OF_RIGHTS}::test_a_former_topic_that_the_user_may_not_see_any_more_is_let_alone",),
    ),
    Mutant(
        bug=6,
        name="a-producer-that-could-not-begin-goes-on-asking",
        file="src/penstock/sink/kafka/lane_producer.py",
        find="        except BaseException:\n            self.drop()\n",
        replace="        except BaseException:\n",
        tests=(f"{OF_PRODUCERS}::test_an_error_that_is_kept_keeps_no_client_that_could_not_fence_older_ones",),
    ),
    Mutant(
        bug=6,
        name="a-connection-that-fails-leaves-a-thread",
        file=TRANSACTIONS,
        find="                self.close()\n            raise\n",
        replace="            raise\n",
        tests=("tests/live/test_kafka_transactions.py::test_a_connection_that_fails_leaves_no_thread",),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-fills-lanes-that-the-ledger-left-empty",
        file="src/penstock/sink/kafka/sink.py",
        find="            map_concurrently(lambda at: self._lane(at).require_own(shares[at]), range(lanes))  # I2\n",
        replace="            pass\n",
        tests=(f"{OF_LEDGERS}::test_of_two_copies_of_a_ledger_one_delivers_though_the_other_uses_more_lanes",),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-goes-on-beside-a-lane-that-it-does-not-use",
        file=LANE,
        find="        elif share.staged or marker.position == share.position:\n",
        replace="        elif share.staged:\n",
        tests=(
            f"{OF_LEDGERS}::test_a_copy_does_not_go_on_beside_a_lane_that_has_published_its_share[the same position-one lane]",
        ),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-goes-on-beside-a-lane-that-is-between-its-decisions",
        file=LANE,
        find='            require_no_copy(share, marker.position, place=f"Lane {self.number} of topic {marker.table_name!r}")\n',
        replace="            pass\n",
        tests=(f"{OF_LEDGERS}::test_of_two_copies_of_a_ledger_one_delivers_though_the_other_uses_more_lanes[a later one]",),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-goes-on-behind-a-part-of-a-batch",
        file="src/penstock/sink/kafka/marker_store.py",
        find="        if part is None:\n            return 0\n",
        replace="        if part is None or part.position != publication.position:\n            return 0\n",
        tests=(f"{OF_LEDGERS}::test_a_copy_does_not_go_on_behind_a_part_of_a_batch[a later one-1]",),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-goes-on-beside-a-part-of-a-batch-in-another-lane",
        file=LANE,
        find="            self._opened().rows_there(share)\n        elif",
        replace="        elif",
        tests=(f"{OF_LEDGERS}::test_a_copy_does_not_go_on_behind_a_part_of_a_batch[the same position-2]",),
    ),
)
