"""Options of a source that reads files: what is refused, each with what was likely meant."""

import pytest

from penstock.errors import Usage
from penstock.spec.source import Source


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", {"header": True, "MAXFILESPERTRIGGER": 2, "mode": "failfast", "nullValue": "", "fs.s3a.endpoint": "http://here"}),
        ("JSON", {"multiLine": "TRUE", "maxBytesPerTrigger": "1000", "cleanSource": "archive", "sourceArchiveDir": "/done"}),
        ("xml", {"rowTag": "flight", "rowValidationXSDPath": "flight.xsd", "columnNameOfCorruptRecord": "bad"}),
        ("parquet", {"mergeSchema": True, "pathGlobFilter": "*.parquet", "parquet.crypto.factory.class": "x"}),
        ("avro", {"avroSchema": "{}", "mode": "PERMISSIVE"}),
        ("orc", {"mergeSchema": True}),
        ("text", {"wholetext": True, "latestFirst": True}),
        ("binaryFile", {"recursiveFileLookup": True}),
        ("rate", {"rowsPerSecond": 5, "anything": "goes"}),
    ],
)
def test_what_spark_knows_is_taken(kind: str, options: dict[str, object]) -> None:
    path = None if kind == "rate" else "/in"
    assert Source(format=kind, path=path, options=options).options.keys() == options.keys()


@pytest.mark.parametrize(
    ("kind", "option", "value", "told"),
    [
        ("csv", "maxFilesPerTriger", 1, "maxFilesPerTriger is not a known key. Did you mean maxFilesPerTrigger?"),
        ("csv", "haeder", True, "Did you mean header?"),
        ("json", "header", True, "options.header is not a known key."),
        ("parquet", "mergeSchemas", True, "Did you mean mergeSchema?"),
        ("binaryFile", "wholetext", True, "options.wholetext is not a known key."),
        (
            "csv",
            "mode",
            "FAILFSAT",
            "mode should be PERMISSIVE, DROPMALFORMED or FAILFAST, found the text 'FAILFSAT'. Did you mean FAILFAST?",
        ),
        ("csv", "maxFilesPerTrigger", 0, "maxFilesPerTrigger should be a whole number above 0, found the text '0'."),
        ("csv", "maxBytesPerTrigger", "1MB", "For example maxBytesPerTrigger: 100."),
        ("csv", "header", "yes", "header should be true or false, found the text 'yes'. For example header: true."),
        ("csv", "modifiedAfter", "2026-01-01", "modifiedAfter is for queries that are no streams. Take it out."),
    ],
)
def test_what_it_does_not_know_is_refused_with_the_nearest(kind: str, option: str, value: object, told: str) -> None:
    with pytest.raises(Usage) as raised:
        Source(format=kind, path="/in", options={option: value})
    assert told in str(raised.value)


def test_where_there_are_many_keys_only_the_nearest_is_named() -> None:
    with pytest.raises(Usage) as raised:
        Source(format="csv", path="/in", options={"maxFilesPerTriger": 1})
    assert raised.value.remedy == "Did you mean maxFilesPerTrigger?"
