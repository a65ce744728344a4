"""Bugs planted in what is told of a query's state: forecasts that come too late or for nothing, state that is called bounded."""

from tests.mutation.mutant import Mutant

SAMPLES = "src/penstock/observe/state_samples.py"
SIZE = "src/penstock/observe/state_size.py"
LAYOUT = "src/penstock/checkpoint/state_layout.py"
OF_SIZE = "tests/unit/test_state_size.py"
OF_LAYOUT = "tests/upgrade/test_checkpoint_state.py"

MUTANTS_OF_STATE = (
    Mutant(
        bug=62,
        name="growth-is-measured-over-everything-that-was-noted",
        file=SIZE,
        find="    return next((sample for sample in reversed(samples) if sample.at_ms <= day_ago_ms), samples[0])",
        replace="    return samples[0]",
        tests=(f"{OF_SIZE}::test_growth_is_that_of_the_last_day",),
    ),
    Mutant(
        bug=62,
        name="a-query-that-catches-up-is-warned-about",
        file=SIZE,
        find="self.reached_in_ms is not None and self.measured_ms >= MEASURED_MS",
        replace="self.reached_in_ms is not None",
        tests=(f"{OF_SIZE}::test_what_a_query_does_in_its_first_hour_is_no_reason_to_warn",),
    ),
    Mutant(
        bug=62,
        name="batches-that-were-taken-back-make-the-state-grow",
        file=SAMPLES,
        find="        if sample.batch_id < after:",
        replace="        if True:",
        tests=(f"{OF_SIZE}::test_batches_that_were_taken_back_do_not_count",),
    ),
    Mutant(
        bug=62,
        name="what-was-noted-grows-for-ever",
        file=SAMPLES,
        find="            if size_bytes >= self._full_bytes:",
        replace="            if size_bytes < 0:",
        tests=(f"{OF_SIZE}::test_what_is_kept_is_bounded_and_spans_a_month",),
    ),
    Mutant(
        bug=62,
        name="a-watermark-somewhere-in-the-query-is-taken-for-one-in-the-key",
        file=LAYOUT,
        find="    if in_key or (name == _SESSIONS and in_value):",
        replace="    if schemas:",
        tests=(f"{OF_LAYOUT}::test_a_deduplication_without_the_event_time_keeps_every_key",),
    ),
    Mutant(
        bug=62,
        name="one-side-of-a-join-with-a-watermark-is-enough",
        file=LAYOUT,
        find="        return None if all(sides) else False",
        replace="        return None if any(sides) else False",
        tests=(f"{OF_LAYOUT}::test_a_join_without_a_watermark_on_one_side_keeps_all_rows",),
    ),
)
