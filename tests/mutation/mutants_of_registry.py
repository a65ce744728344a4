"""Bugs planted in what decodes values by a schema registry, and in the quarantine."""

from tests.mutation.mutant import Mutant

CLIENT, DECODING = "src/penstock/registry/client.py", "src/penstock/registry/decoding.py"
OF_CLIENT, OF_QUARANTINE = "tests/unit/test_registry_client.py", "tests/unit/test_registry_quarantine.py"

MUTANTS_OF_REGISTRY = (
    Mutant(
        bug=17,
        name="a-column-of-another-type-than-the-schemas-is-written",
        file="src/penstock/registry/encoding.py",
        find="    if misfit is not None:\n",
        replace="    if misfit is None:\n",
        tests=("tests/unit/test_registry_encoding.py::test_a_column_of_another_type_is_refused",),
    ),
    Mutant(
        bug=23,
        name="whatever-answers-404-says-that-there-is-no-such-schema",
        file=CLIENT,
        find="if answer.status_code == 404 and code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:",
        replace="if answer.status_code == 404:",
        tests=(f"{OF_CLIENT}::test_only_the_registry_itself_can_say_that_there_is_no_such_schema",),
    ),
    Mutant(
        bug=23,
        name="a-node-that-does-not-know-a-schema-yet-is-believed",
        file=CLIENT,
        find="                unknown = told\n",
        replace="                raise told\n",
        tests=(f"{OF_CLIENT}::test_a_schema_is_unknown_only_if_every_node_says_so",),
    ),
    Mutant(
        bug=23,
        name="a-node-that-is-away-counts-as-one-that-does-not-know-the-schema",
        file=CLIENT,
        find="raise trouble or unknown or",
        replace="raise unknown or trouble or",
        tests=(f"{OF_CLIENT}::test_a_schema_is_unknown_only_if_every_node_says_so",),
    ),
    Mutant(
        bug=23,
        name="a-registry-that-does-not-answer-makes-records-undecodable",
        file=DECODING,
        find="        except SchemaUnknown as unknown:\n",
        replace="        except Exception as unknown:\n",
        tests=(f"{OF_CLIENT}::test_a_registry_that_does_not_answer_makes_no_record_undecodable",),
    ),
    Mutant(
        bug=17,
        name="how-deep-a-value-may-be-depends-on-the-stack",
        file="src/penstock/registry/jsonschema.py",
        find='        except ValueError as error:\n            raise Undecodable(f"it is no JSON',
        replace='        except (ValueError, RecursionError) as error:\n            raise Undecodable(f"it is no JSON',
        tests=("tests/unit/test_registry_json.py::test_a_value_deeper_than_the_stack_fails_the_task",),
    ),
    Mutant(
        bug=17,
        name="a-value-may-be-as-deep-as-the-stack-lets-it",
        file="src/penstock/registry/jsonschema.py",
        find="            if _is_deep(text):\n",
        replace="            if _is_deep(text) and False:\n",
        tests=("tests/unit/test_registry_json.py::test_how_deep_a_value_may_be_does_not_depend_on_the_stack",),
    ),
    Mutant(
        bug=17,
        name="bytes-behind-a-value-are-passed-over",
        file="src/penstock/registry/avro.py",
        find="        if left:\n",
        replace="        if left > 1:\n",
        tests=("tests/unit/test_registry_avro.py::test_what_is_no_value_of_its_schema_is_told",),
    ),
    Mutant(
        bug=17,
        name="a-record-in-quarantine-is-delivered-too-with-a-null-value",
        file=DECODING,
        find="if row not in found.bad]",
        replace="if row is not None]",
        tests=(f"{OF_QUARANTINE}::test_the_other_sinks_get_the_others",),
    ),
    Mutant(
        bug=17,
        name="a-schema-that-became-known-in-between-is-not-noticed",
        file="src/penstock/run/quarantine.py",
        find="            except SchemaUnknown:\n                continue\n            raise",
        replace="            except SchemaUnknown:\n                continue\n            return\n            raise",
        tests=(f"{OF_QUARANTINE}::test_a_schema_that_the_registry_knows_by_now_lets_nothing_be_decided",),
    ),
    Mutant(
        bug=17,
        name="bad-records-of-a-source-that-is-read-twice-are-in-no-sink",
        file="src/penstock/run/quarantine.py",
        find="        require_read_once(self._sources, [each.source for each in ranges])\n",
        replace="",
        tests=(f"{OF_QUARANTINE}::test_a_source_that_is_not_read_once_is_refused_before_its_records_are_lost",),
    ),
    Mutant(
        bug=17,
        name="records-in-quarantine-are-no-part-of-their-batch",
        file="src/penstock/run/quarantine.py",
        find="return PutAside(pieces=staged.pieces, bad=bad,",
        replace="return PutAside(pieces=(), bad=bad,",
        tests=(f"{OF_QUARANTINE}::test_what_is_found_is_staged_for_the_quarantine",),
    ),
)
