"""Bugs planted in how the encodings of Parquet columns are chosen."""

from tests.mutation.mutant import Mutant

ENCODING = "src/penstock/sink/parquet/encoding.py"
OF_ENCODINGS = "tests/unit/test_parquet_encoding.py"
OF_CHOICES = f"{OF_ENCODINGS}::test_each_column_has_what_fits_it_and_is_never_larger_for_it"

MUTANTS_OF_ENCODINGS = (
    Mutant(
        bug=60,
        name="the-dictionary-is-chosen-for-every-column",
        file=ENCODING,
        find="    return PLAIN, False",
        replace="    return DICTIONARY, True",
        tests=(OF_CHOICES,),
    ),
    Mutant(
        bug=60,
        name="differences-are-never-chosen",
        file=ENCODING,
        find="yield leaf.path, DELTA_BINARY_PACKED",
        replace="yield leaf.path, PLAIN",
        tests=(OF_CHOICES,),
    ),
    Mutant(
        bug=60,
        name="numbers-that-compress-well-are-held-for-larger-than-their-differences",
        file=ENCODING,
        find="    return delta_bytes <= len(pa.Codec",
        replace="    return 0 <= len(pa.Codec",
        tests=(OF_CHOICES,),
    ),
    Mutant(
        bug=60,
        name="doubles-are-split-into-streams-unasked",
        file=ENCODING,
        find="yield leaf.path, DICTIONARY if dictionary_bytes < plain_bytes else PLAIN",
        replace="is_real = pa.types.is_floating(leaf.values.type)\n"
        "            rest = BYTE_STREAM_SPLIT if is_real else PLAIN\n"
        "            yield leaf.path, DICTIONARY if dictionary_bytes < plain_bytes else rest",
        tests=(OF_CHOICES,),
    ),
    Mutant(
        bug=60,
        name="doubles-are-not-split-into-streams-where-that-is-set",
        file=ENCODING,
        find="if name not in {DICTIONARY, PLAIN}",
        replace="if name not in {DICTIONARY, PLAIN, BYTE_STREAM_SPLIT}",
        tests=(f"{OF_ENCODINGS}::test_staged_files_are_read_as_they_were_by_arrow_duckdb_and_pandas[each]",),
    ),
    Mutant(
        bug=60,
        name="an-encoding-that-does-not-fit-the-type-is-taken",
        file=ENCODING,
        find="            if name not in fitting(kind):",
        replace="            if False:",
        tests=(f"{OF_ENCODINGS}::test_wrong_encodings_are_refused_before_anything_is_staged",),
    ),
)
