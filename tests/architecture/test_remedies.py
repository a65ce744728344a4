"""Each remedy of docs/ERRORS.md is carried out by a test, which then looks at the content of the sinks."""

import ast

import pytest

from penstock import errors
from tests.architecture.reading import ROOT, nodes_of, tree_of
from tests.architecture.test_errors import CAUGHT_HERE, CLASSES, GROUPS

SURGERY = "tests/crash/test_surgery.py"
ATTACK = "tests/attack/test_remedies.py"
FAILURE = "tests/spark/test_delivery_failure.py"
CARRIED_OUT = {
    "Usage": f"{FAILURE}::test_a_pipeline_file_that_is_wrong_delivers_once_it_is_corrected_as_told",
    "GuaranteeTooWeak": "tests/spark/test_at_least_once.py::test_a_socket_runs_at_least_once_and_starts_again",
    "CheckpointReplaced": f"{SURGERY}::test_the_checkpoint_of_another_query_is_refused_or_adopted",
    "CheckpointMissing": f"{SURGERY}::test_a_deleted_checkpoint_is_refused_until_a_new_one_is_adopted",
    "CheckpointDamaged": f"{SURGERY}::test_a_torn_entry_is_refused_until_it_is_put_back",
    "SourcesChanged": "tests/spark/test_delivery_sources.py"
    "::test_sources_in_another_order_are_refused_before_spark_reads_one_by_the_log_of_the_other",
    "PipelineChanged": "tests/spark/test_preflight.py::test_what_is_put_back_goes_on_exactly",
    "InputLost": "tests/crash/test_kafka_gaps.py::test_expired_records_are_counted_and_the_policy_decides",
    "JournalDamaged": "tests/unit/test_journal.py::test_a_damaged_segment_is_restored_from_the_copy",
    "OffsetsConflict": f"{SURGERY}::test_an_older_copy_is_recognised_or_refused",
    "BatchGap": f"{ATTACK}::test_a_gap_in_the_batches",
    "LedgerMismatch": "tests/live/test_parquet_ownership.py::test_where_the_ledger_is_lost_the_remedy_delivers_every_row_once",
    "Fenced": "tests/crash/test_two_drivers.py::test_of_two_that_start_at_the_same_moment_one_is_fenced",
    "Retryable": "tests/live/test_kafka_ledgers.py::test_a_part_of_a_batch_carries_it_too",
    "OutcomeUnknown": f"{ATTACK}::test_a_decision_whose_answer_was_lost",
    "NotPublishedYet": f"{FAILURE}::test_a_stop_does_not_wait_for_a_sink_that_does_not_answer",
    "PublishFailed": "tests/spark/test_delivery_failure.py::test_a_failed_publication_is_rolled_forward_by_the_next_start",
    "InputChanged": f"{FAILURE}::test_a_planned_file_whose_change_is_meant_is_delivered_once_the_remedy_is_carried_out",
    "BatchForgotten": f"{ATTACK}::test_a_batch_that_the_ledger_forgot",
    "StoreIgnoresConditions": f"{ATTACK}::test_a_store_that_ignores_conditions",
    "FormatTooNew": f"{ATTACK}::test_a_marker_of_a_newer_version",
    "StageFailed": f"{FAILURE}::test_rows_without_an_account_are_delivered_once_the_remedy_is_carried_out",
    "StagedDataLost": f"{ATTACK}::test_staged_data_that_is_lost",
    "ContentConflict": f"{ATTACK}::test_a_foreign_file_under_the_decided_name",
    "BatchFailed": f"{FAILURE}::test_what_failed_is_delivered_by_the_next_start_once_its_cause_is_mended",
    "DependencyMissing": f"{ATTACK}::test_a_driver_that_is_not_installed",
}


def documented() -> set[str]:
    return {error.__name__ for error in CLASSES if error not in {*CAUGHT_HERE, *GROUPS}}


def test_each_remedy_is_carried_out_by_a_test() -> None:
    assert documented() == CARRIED_OUT.keys()


@pytest.mark.parametrize("error", CARRIED_OUT)
def test_that_test_is_there(error: str) -> None:
    assert issubclass(getattr(errors, error), errors.PenstockError)
    file, _, name = CARRIED_OUT[error].partition("::")
    tests = {node.name for node in nodes_of(tree_of(ROOT / file)) if isinstance(node, ast.FunctionDef)}
    assert name in tests
