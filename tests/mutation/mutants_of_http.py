"""Bugs planted in the HTTP sink."""

from tests.mutation.mutant import Mutant

SINK = "src/penstock/sink/http/sink.py"
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
        find="                marks.add(publication)\n",
        replace="",
        tests=(f"{OF_HTTP}::test_what_was_answered_is_not_sent_by_a_later_run",),
    ),
    Mutant(
        bug=15,
        name="a-batch-is-noted-before-it-is-answered",
        file=SINK,
        find="                self._post_all(publication)\n                marks.add(publication)\n",
        replace="                marks.add(publication)\n                self._post_all(publication)\n",
        tests=(f"{OF_HTTP}::test_a_decided_batch_keeps_its_requests_whatever_the_settings_are_now",),
    ),
    Mutant(
        bug=15,
        name="a-key-is-another-one-at-each-repetition",
        file=SINK,
        find='    return f"{pipeline}/{sink}/{publication.position}/{_identity(publication)}/{request.name}"',
        replace='    return f"{pipeline}/{sink}/{publication.position}/{_identity(publication)}/{request.name}/{id(request)}"',
        tests=(f"{OF_HTTP}::test_a_lost_answer_is_asked_for_with_the_same_key",),
    ),
    Mutant(
        bug=15,
        name="a-batch-of-another-ledger-is-taken-for-answered",
        file=SINK,
        find="        if found != _identity(publication):\n",
        replace="        if False:\n",
        tests=(f"{OF_HTTP}::TestHttp::test_a_position_of_another_ledger_is_not_taken_for_published[HttpRig]",),
    ),
    Mutant(
        bug=15,
        name="rows-of-a-key-are-sent-in-turn",
        file="src/penstock/sink/http/layout.py",
        find="        return [value % self.lanes for value in hashes]\n",
        replace="        return [place % self.lanes for place, _ in enumerate(hashes)]\n",
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
)
