"""Bugs planted in what is asked before a query is started, and in where its places are."""

from tests.mutation.mutant import Mutant

DELIVERY = "src/penstock/run/delivery.py"
DEMANDS = "src/penstock/run/required_guarantees.py"
FACTS = "src/penstock/run/query_facts.py"
LISTING = "src/penstock/checkpoint/input_listing.py"
PLACE = "src/penstock/spec/place.py"
OF_PLACES = "tests/unit/test_spec_place.py"
OF_INPUT = "tests/unit/test_checkpoint_input.py"
OF_OBJECTS = f"{OF_INPUT}::test_the_time_of_an_object_is_compared_as_exactly_as_its_store_tells_it"
OF_FAILURE = "tests/spark/test_delivery_failure.py"
OF_DOORS = "tests/spark/test_doors.py::test_every_door_refuses"

OF_HANDED_ON = "tests/spark/test_doors.py::test_a_delivery_that_is_handed_to_query_after_query_checks_each"

MUTANTS_OF_DOORS = (
    Mutant(
        bug=38,
        name="a-path-may-begin-with-a-user-and-a-password",
        file=PLACE,
        find="    if _LACKS_ITS_SCHEME.match(path):\n",
        replace="    if False:\n",
        tests=(f"{OF_PLACES}::test_a_server_without_its_scheme_is_no_directory[ledger]",),
    ),
    Mutant(
        bug=39,
        name="delivery-start-asks-nothing",
        file=DELIVERY,
        find="        facts = facts_of_writer(writer, self.plan.sources)\n        claims = require_demanded(facts, self.plan)\n",
        replace="        facts, claims = facts_of_writer(writer, self.plan.sources), ()\n",
        tests=(f"{OF_DOORS}[replace in append mode, delivery.start]",),
    ),
    Mutant(
        bug=39,
        name="foreach-batch-asks-nothing",
        file=DELIVERY,
        find="            claims = require_demanded(facts, self.plan)\n            require_batches(facts)\n",
        replace="            claims = ()\n",
        tests=(f"{OF_DOORS}[files that may be missing, foreachBatch]",),
    ),
    Mutant(
        bug=39,
        name="foreach-batch-asks-the-first-query-only",
        file=DELIVERY,
        find="        if self._run is not None:",
        replace="        if False:",
        tests=(OF_HANDED_ON,),
    ),
    Mutant(
        bug=39,
        name="foreach-batch-opens-the-ledger-first",
        file=DELIVERY,
        find="        schema = rows.schema.json()\n        if",
        replace="        schema = rows.schema.json()\n        self.open(schema=schema)\n        if",
        tests=(f"{OF_DOORS}[replace in append mode, foreachBatch]",),
    ),
    Mutant(
        bug=39,
        name="options-of-the-query-are-not-asked-for",
        file=DEMANDS,
        find="        *option_claims(facts.options or {}),\n",
        replace="",
        tests=(f"{OF_DOORS}[asynchronous progress, delivery.start]",),
    ),
    Mutant(
        bug=39,
        name="random-values-behind-the-25th-column-go-unseen",
        file="src/penstock/transform/plan.py",
        find="str(2**31 - 1)",
        replace='"25"',
        tests=(f"{OF_DOORS}[random values below state, delivery.start]",),
    ),
    Mutant(
        bug=39,
        name="functions-declared-nondeterministic-are-not-asked-for",
        file="src/penstock/transform/plan.py",
        find=", random=frozenset(_declared_random(analyzed))",
        replace="",
        tests=(f"{OF_DOORS}[a function declared nondeterministic below state, delivery.start]",),
    ),
    Mutant(
        bug=39,
        name="new-random-functions-of-spark-are-not-known",
        file="src/penstock/transform/guarantee.py",
        find="randn|random|randstr|uniform|uuid",
        replace="randn|random|uuid",
        tests=("tests/unit/test_transform_plan.py::test_values_that_change_at_a_replay_below_state",),
    ),
    Mutant(
        bug=40,
        name="an-unknown-scheme-is-a-directory",
        file=PLACE,
        find="    if scheme_of(path):\n        raise _unknown(path)\n",
        replace="",
        tests=(f"{OF_PLACES}::test_a_place_that_is_not_understood_is_no_directory",),
    ),
    Mutant(
        bug=39,
        name="wildcards-of-a-source-are-names",
        file=PLACE,
        find="any(all(map(fnmatchcase, place, one)) for one in patterns)",
        replace="same_or_nested(url, pattern)",
        tests=(f"{OF_PLACES}::test_a_source_that_reads_what_a_sink_writes_is_refused",),
    ),
    Mutant(
        bug=39,
        name="file-and-one-slash-is-a-relative-path",
        file=PLACE,
        find='Path("/" + place[len("file:") :].removeprefix("//localhost").lstrip("/"))',
        replace='Path(place[len("file://") :])',
        tests=(f"{OF_PLACES}::test_a_source_that_reads_what_a_sink_writes_is_refused",),
    ),
    Mutant(
        bug=40,
        name="a-blank-before-a-url-makes-it-a-directory",
        file="src/penstock/blob/url.py",
        find="    return _MISSPELT.match(place) is not None",
        replace="    return False",
        tests=(f"{OF_PLACES}::test_a_place_that_is_not_understood_is_no_directory",),
    ),
    Mutant(
        bug=40,
        name="a-source-passes-on-what-spark-takes-for-a-directory",
        file=PLACE,
        find="    return value if scheme_of(value) and known_to_spark else _absolute(value, info)\n",
        replace="    return value if scheme_of(value) else _absolute(value, info)\n",
        tests=(f"{OF_PLACES}::test_a_path_of_a_source_that_is_not_understood_is_refused",),
    ),
    Mutant(
        bug=40,
        name="the-spool-of-a-sink-of-one's-own-is-anywhere",
        file="src/penstock/sink/spool/root.py",
        find="    if scheme_of(text) and not is_blob(text):",
        replace="    if False:",
        tests=(f"{OF_PLACES}::test_a_place_that_is_not_understood_is_no_directory",),
    ),
    Mutant(
        bug=36,
        name="an-input-file-that-cannot-be-looked-at-is-as-planned",
        file=LISTING,
        find="""\
                except (FileNotFoundError, NotADirectoryError):
                    return FileState(size_bytes=None)
""",
        replace="""\
                except OSError:
                    return None
""",
        tests=("tests/unit/test_checkpoint_input.py::test_a_file_that_cannot_be_looked_at_is_told_and_not_taken_for_unchanged",),
    ),
    Mutant(
        bug=36,
        name="files-of-a-replay-are-taken-as-they-are",
        file=LISTING,
        find="    if seen.modified_ms // seen.step_ms == file.modified_ms // seen.step_ms:",
        replace="    if seen.modified_ms // seen.step_ms >= file.modified_ms // seen.step_ms:",
        tests=(f"{OF_INPUT}::test_a_file_that_was_cut_short_is_delivered_again_once_the_remedy_is_carried_out",),
    ),
    Mutant(
        bug=36,
        name="an-object-that-was-overwritten-is-taken-as-it-is",
        file=LISTING,
        find="modified_ms=found.modified_ms, step_ms",
        replace="modified_ms=None, step_ms",
        tests=(OF_OBJECTS,),
    ),
    Mutant(
        bug=36,
        name="objects-whose-store-tells-whole-seconds-are-held-against-milliseconds",
        file=LISTING,
        find='step_ms = 1 if place.kind == "hdfs" else 1000',
        replace="step_ms = 1",
        tests=(OF_OBJECTS,),
    ),
    Mutant(
        bug=36,
        name="an-object-that-anybody-tagged-is-as-planned",
        file=LISTING,
        find="seen.noted == str(file.modified_ms)",
        replace="seen.noted is not None",
        tests=(OF_OBJECTS,),
    ),
    Mutant(
        bug=36,
        name="an-object-that-was-put-back-is-refused-for-ever",
        file=LISTING,
        find=" or seen.noted == str(file.modified_ms)",
        replace="",
        tests=(OF_OBJECTS,),
    ),
    Mutant(
        bug=36,
        name="files-of-a-replay-are-looked-at-after-staging-only",
        file="src/penstock/run/batch_stager.py",
        find="        if batch.batch_id == self._planned_before:",
        replace="        if False:",
        tests=(f"{OF_FAILURE}::test_a_planned_file_that_changes_before_its_replay_stops_before_anything_is_staged",),
    ),
)
