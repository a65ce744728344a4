"""The options of a source that reads files, and what is wrong with them.

Source: what Spark 4.3 itself lists (`CSVOptions.getAllOptions` and its like) and "Structured Streaming Programming Guide". Spark
ignores options that it does not know: with `maxFilesPerTriger` the first batch would read every file that is there.
"""

from collections.abc import Callable, Iterator, Mapping

from penstock.spec.complaint import Complaint, described
from penstock.spec.settings import nearest, unknown_key

MODE, MODES = "mode", ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
CORRUPT = "columnNameOfCorruptRecord"
"""Names the column of the schema that takes the text of a row that does not fit."""

_COUNTS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
_OF_ALL = (
    *_COUNTS, "latestFirst", "maxFileAge", "maxCachedFiles", "discardCachedInputRatio", "fileNameOnly", "cleanSource",
    "sourceArchiveDir", "pathGlobFilter", "recursiveFileLookup", "ignoreMissingFiles", "ignoreCorruptFiles", "basePath",
    "ignoredPathSegmentRegex", "archivePathFilter", "compression",
)  # fmt: skip
HOW_FILES_ARE_FOUND = frozenset(name.lower() for name in _OF_ALL if name != "compression")
"""Options, in lower case, that say which files are read and when, not what is in them."""
_FLAGS = (
    "latestFirst", "fileNameOnly", "recursiveFileLookup", "ignoreMissingFiles", "ignoreCorruptFiles", "multiLine", "header",
    "inferSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "escapeQuotes", "quoteAll", "enforceSchema",
    "mergeSchema", "wholetext",
)  # fmt: skip
_OF_BATCH_QUERIES = frozenset({"modifiedbefore", "modifiedafter"})
_OF_TEXTS = (
    MODE, CORRUPT, "charset", "dateFormat", "encoding", "locale", "multiLine", "samplingRatio",
    "singleVariantColumn", "timeFormat", "timeZone", "timestampFormat", "timestampNTZFormat",
)  # fmt: skip
_OF_FORMAT: Mapping[str, tuple[str, ...]] = {
    "csv": (
        *_OF_TEXTS, "charToEscapeQuoteEscaping", "codec", "columnPruning", "comment", "delimiter", "emptyValue",
        "enableDateTimeParsingFallback", "enforceSchema", "escape", "escapeQuotes", "extension", "header",
        "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "inferSchema", "inputBufferSize", "lineSep", "maxCharsPerColumn",
        "maxColumns", "nanValue", "negativeInf", "nullValue", "positiveInf", "preferDate", "quote", "quoteAll", "sep",
        "unescapedQuoteHandling",
    ),
    "json": (
        *_OF_TEXTS, "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros",
        "allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "dropFieldIfAllNull",
        "enableDateTimeParsingFallback", "explodeEmbeddedArray", "ignoreNullFields", "inferTimestamp", "lineSep",
        "prefersDecimal", "pretty", "primitivesAsString", "sortKeys", "useUnsafeRow", "writeNonAsciiCharacterAsCodePoint",
    ),
    "xml": (
        *_OF_TEXTS, "arrayElementName", "attributePrefix", "declaration", "excludeAttribute", "ignoreNamespace",
        "ignoreSurroundingSpaces", "indent", "inferSchema", "nullValue", "preferDate", "prefersDecimal", "rootTag", "rowTag",
        "rowValidationXSDPath", "useLegacyXMLParser", "validateName", "valueTag", "wildcardColName",
    ),
    "parquet": ("datetimeRebaseMode", "int96RebaseMode", "mergeSchema"),
    "orc": ("mergeSchema",),
    "text": ("encoding", "lineSep", "wholetext"),
    "avro": (
        MODE, "avroSchema", "avroSchemaUrl", "datetimeRebaseMode", "enableStableIdentifiersForUnionType", "ignoreExtension",
        "positionalFieldMatching", "recordName", "recordNamespace", "recursiveFieldMaxDepth",
        "stableIdentifierPrefixForUnionType",
    ),
    "binaryfile": (),
}  # fmt: skip


def options_of(kind: str) -> tuple[str, ...]:
    """Return the options of files of the format `kind`, in lower case; none of a format that reads no files."""
    return (*_OF_ALL, *_OF_FORMAT[kind]) if kind in _OF_FORMAT else ()


def file_complaints(kind: str, options: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what is wrong with the options of files of a format. Names with a dot are settings of Hadoop or of a store."""
    known = options_of(kind.lower())
    names = {name.lower(): name for name in known}
    for given, value in options.items():
        name = names.get(given.lower())
        if given.lower() in _OF_BATCH_QUERIES:
            yield Complaint(message="is for queries that are no streams", remedy="Take it out.", at=(given,))
        elif name is None:
            yield from (unknown_key(given, known),) if "." not in given else ()
        else:
            yield from _of_value(given, name, value)


def _of_value(given: str, name: str, value: str) -> Iterator[Complaint]:
    fits, expected, example = _CHECKS.get(name, _ANY)
    if not fits(value):
        guess = nearest(value, MODES) if name == MODE else None
        remedy = f"Did you mean {guess}?" if guess else f"For example {name}: {example}."
        yield Complaint(message=f"should be {expected}, found {described(value)}", remedy=remedy, at=(given,))


_Check = tuple[Callable[[str], bool], str, str]
_ANY: _Check = (lambda _: True, "", "")
_CHECKS: Mapping[str, _Check] = {
    **dict.fromkeys(_COUNTS, (lambda value: value.isdecimal() and int(value) > 0, "a whole number above 0", "100")),
    **dict.fromkeys(_FLAGS, (lambda value: value.lower() in {"true", "false"}, "true or false", "true")),
    MODE: (lambda value: value.upper() in MODES, ", ".join(MODES[:-1]) + f" or {MODES[-1]}", MODES[0]),
}
"""Whether a value fits, what is expected, and an example. What is not here Spark itself checks, or takes any text of."""
