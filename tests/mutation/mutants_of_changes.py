"""Bugs planted in what decodes change events of Debezium."""

from tests.mutation.mutant import Mutant

EVENT, READER = "src/penstock/registry/change_event.py", "src/penstock/registry/change_reader.py"
TYPES, DECODING = "src/penstock/registry/semantic_type.py", "src/penstock/registry/decoding.py"
OF_EVENTS, OF_TYPES = "tests/unit/test_change_events.py", "tests/unit/test_semantic_types.py"
CONVERSION = "src/penstock/registry/column_conversion.py"
OF_AVRO = "tests/unit/test_avro_change_events.py"

MUTANTS_OF_CHANGES = (
    Mutant(
        bug=43,
        name="what-stands-for-an-unavailable-value-replaces-the-value",
        file=READER,
        find="        if not event.deletes and self.placeholder.stands_for(value):\n",
        replace="        if event.deletes and self.placeholder.stands_for(value):\n",
        tests=(f"{OF_EVENTS}::TestUnavailable::test_it_is_never_a_value",),
    ),
    Mutant(
        bug=43,
        name="null-before-the-change-counts-as-the-unavailable-value",
        file=READER,
        find="        if value is None or self.placeholder.stands_for(value):\n",
        replace="        if value is not None and self.placeholder.stands_for(value):\n",
        tests=(f"{OF_EVENTS}::TestUnavailable::test_it_is_never_a_value",),
    ),
    Mutant(
        bug=17,
        name="an-object-in-the-place-of-a-text-says-something",
        file=EVENT,
        find='        raise Undecodable(f"its `source.snapshot`',
        replace='        return True\n        raise Undecodable(f"its `source.snapshot`',
        tests=(f"{OF_EVENTS}::test_what_has_objects_in_the_place_of_texts_is_put_aside",),
    ),
    Mutant(
        bug=17,
        name="tombstones-are-rows-of-nulls",
        file=DECODING,
        find="if row not in found.bad and row not in found.dropped]",
        replace="if row not in found.bad]",
        tests=(f"{OF_EVENTS}::test_what_changes_nothing_is_left_out",),
    ),
    Mutant(
        bug=17,
        name="a-truncate-is-passed-over",
        file=EVENT,
        find="    if op == _TRUNCATE:\n",
        replace="    if op == _TRUNCATE:\n        return None\n    if op == _TRUNCATE:\n",
        tests=(f"{OF_EVENTS}::test_what_is_no_change_of_a_row_fails_its_batch_with_what_to_do",),
    ),
    Mutant(
        bug=17,
        name="changes-of-schemas-are-passed-over",
        file=EVENT,
        find='    if "databaseName" in found and',
        replace='    if "databaseName" in found:\n        return\n    if "databaseName" in found and',
        tests=(f"{OF_EVENTS}::test_what_is_no_change_of_a_row_fails_its_batch_with_what_to_do",),
    ),
    Mutant(
        bug=43,
        name="positions-sort-as-texts-of-any-length",
        file=EVENT,
        find='f"{number:0{width}d}"',
        replace='f"{number}"',
        tests=(f"{OF_EVENTS}::test_positions_sort_as_their_numbers",),
    ),
    Mutant(
        bug=43,
        name="a-column-of-another-case-is-null",
        file=READER,
        find="            _require_absent(name, event.row)\n",
        replace="",
        tests=(f"{OF_EVENTS}::test_columns_are_found_by_name_and_those_of_another_case_are_no_nulls",),
    ),
    Mutant(
        bug=43,
        name="a-number-without-a-unit-counts-microseconds",
        file=TYPES,
        find='    unit = UNITS[0].get(semantic.name or "")\n',
        replace='    unit = UNITS[0].get(semantic.name or "", 1000)\n',
        tests=(f"{OF_TYPES}::test_what_a_column_cannot_hold_is_no_value",),
    ),
    Mutant(
        bug=43,
        name="nanoseconds-are-cut-off",
        file=TYPES,
        find="        if rest:\n",
        replace="        if rest < 0:\n",
        tests=(f"{OF_TYPES}::test_what_a_column_cannot_hold_is_no_value",),
    ),
    Mutant(
        bug=43,
        name="digits-of-decimals-are-rounded-off",
        file=TYPES,
        find="traps=[InvalidOperation, Inexact]",
        replace="traps=[InvalidOperation]",
        tests=(f"{OF_TYPES}::test_what_a_column_cannot_hold_is_no_value",),
    ),
    Mutant(
        bug=43,
        name="a-text-that-may-be-base64-counts-as-a-number",
        file=TYPES,
        find="    if isinstance(value, str) and semantic.name is None:\n",
        replace="    if isinstance(value, str) and semantic.name == DECIMAL:\n",
        tests=(f"{OF_TYPES}::TestWithoutSchema::test_the_settings_say_so",),
    ),
    Mutant(
        bug=43,
        name="avro-is-read-by-what-its-columns-stand-for-now",
        file="src/penstock/registry/envelope_schema.py",
        find="written.semantics[found[name]] if name in found else kind",
        replace="kind",
        tests=(f"{OF_AVRO}::test_a_value_is_converted_by_what_it_stood_for_when_it_was_written",),
    ),
    Mutant(
        bug=43,
        name="avro-converts-a-value-before-it-is-known-what-it-stood-for",
        file="src/penstock/registry/avro.py",
        find='if key != "logicalType"}',
        replace="if key}",
        tests=(f"{OF_AVRO}::test_a_record_from_before_a_setting_changed_has_the_same_value",),
    ),
    Mutant(
        bug=43,
        name="older-records-leave-another-unit-of-time-in-a-column",
        file=CONVERSION,
        find="divmod(whole(value, place) * unit, other)",
        replace="divmod(whole(value, place), 1)",
        tests=(f"{OF_AVRO}::test_a_record_from_before_a_setting_changed_has_the_same_value",),
    ),
    Mutant(
        bug=43,
        name="older-values-are-converted-though-nothing-says-what-they-are-now",
        file=CONVERSION,
        find="if known(written, column) else _changed(written, column)",
        replace="",
        tests=(f"{OF_AVRO}::test_a_record_from_before_a_change_that_says_nothing_of_its_value_is_refused",),
    ),
)
