"""Bugs planted in the HTTP sink."""

from tests.mutation.mutant import Mutant

SINK = "src/penstock/sink/http/sink.py"
REQUESTS = "src/penstock/sink/http/batch_requests.py"
CLIENT = "src/penstock/sink/http/client.py"

OF_HTTP = "tests/conformance/test_http_conformance.py"

MUTANTS_OF_HTTP = (
    Mutant(
        bug=15,
        name="a-decided-batch-is-divided-anew-by-settings-of-now",
        file=SINK,
        find="        layout = layout_of(publication.staged[0].ref)  # I8\n",
        replace="        layout = self._layout\n",
        tests=(f"{OF_HTTP}::test_a_decided_batch_keeps_its_requests_whatever_the_settings_are_now",),
    ),
    Mutant(
        bug=15,
        name="an-answered-batch-is-not-noted",
        file=SINK,
        find="                    marks.add(publication)\n",
        replace="",
        tests=(f"{OF_HTTP}::test_what_was_answered_is_not_sent_by_a_later_run",),
    ),
    Mutant(
        bug=15,
        name="a-batch-is-noted-before-it-is-answered",
        file=SINK,
        find="                    self._post_all(publication)\n                    marks.add(publication)\n",
        replace="                    marks.add(publication)\n                    self._post_all(publication)\n",
        tests=(f"{OF_HTTP}::test_a_decided_batch_keeps_its_requests_whatever_the_settings_are_now",),
    ),
    Mutant(
        bug=15,
        name="a-key-is-another-one-at-each-repetition",
        file=REQUESTS,
        find='    return f"{pipeline}/{sink}/{publication.position}/{identity_of(publication)}/{request.name}"',
        replace='    return f"{pipeline}/{sink}/{publication.position}/{identity_of(publication)}/{request.name}/{id(request)}"',
        tests=(f"{OF_HTTP}::test_a_lost_answer_is_asked_for_with_the_same_key",),
    ),
    Mutant(
        bug=15,
        name="a-batch-of-another-ledger-is-taken-for-answered",
        file=SINK,
        find="        if found != identity_of(publication):\n",
        replace="        if False:\n",
        tests=(f"{OF_HTTP}::TestHttp::test_a_position_of_another_ledger_is_not_taken_for_published[HttpRig]",),
    ),
    Mutant(
        bug=15,
        name="rows-of-a-key-are-sent-in-turn",
        file="src/penstock/sink/http/layout.py",
        find="        lane = request.lane if self.key else turn % self.lanes\n",
        replace="        lane = turn % self.lanes\n",
        tests=(f"{OF_HTTP}::test_rows_of_a_key_arrive_in_their_order",),
    ),
    Mutant(
        bug=15,
        name="a-request-that-is-refused-is-taken-for-answered",
        file=CLIENT,
        find='        raise PublishFailed(\n            f"{name} refuses',
        replace='        return\n        raise PublishFailed(\n            f"{name} refuses',
        tests=(f"{OF_HTTP}::test_each_answer_means_something_else",),
    ),
    Mutant(
        bug=15,
        name="a-batch-of-which-tasks-sent-less-is-taken-for-answered",
        file=SINK,
        find="        if sent != publication.totals.rows:  # I1\n",
        replace="        if False:\n",
        tests=(f"{OF_HTTP}::test_a_task_that_sends_less_than_was_decided_is_told",),
    ),
    Mutant(
        bug=15,
        name="tasks-post-to-an-endpoint-that-forgets-keys",
        file=SINK,
        find="        return self._layout.lanes if self._remembers_keys else 0\n",
        replace="        return self._layout.lanes\n",
        tests=(f"{OF_HTTP}::test_an_endpoint_that_forgets_keys_is_not_given_rows_by_tasks",),
    ),
    Mutant(
        bug=15,
        name="a-task-names-requests-otherwise-than-the-driver",
        file="src/penstock/sink/http/layout.py",
        find="        rows = batch.filter(pa.array(numbers == only))\n",
        replace="        rows = batch.filter(pa.array(numbers != only))\n",
        tests=(f"{OF_HTTP}::test_tasks_send_the_same_requests_as_the_driver[KeysInTasksRig]",),
    ),
    Mutant(
        bug=5,
        name="rows-that-another-driver-posted-and-removed-are-lost",
        file=SINK,
        find="                    if not self._marks(publication).shows(publication):\n",
        replace="                    if True:\n",
        tests=(f"{OF_HTTP}::test_a_batch_that_another_driver_posted_and_removed_meanwhile_is_not_lost",),
    ),
)
