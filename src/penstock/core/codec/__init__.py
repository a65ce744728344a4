"""Every durable value as versioned JSON, never pickle. docs/PROTOCOL.md, section Formats, is normative.

A document is one JSON object in ASCII with sorted keys and no blanks, so the same value always gives the same bytes. `format`
names its kind, `version` counts the changes of that kind. A known version is read exactly: a missing, foreign or mistyped field
is damage and raises LedgerMismatch. A newer version raises FormatTooNew. Every change of the fields is a new version;
`tests/upgrade/golden` holds an example of each version ever written. Digests are 16 hexadecimal digits, because not every JSON
reader preserves numbers above 2^53. Bytes are base64.
"""

from penstock.core.codec.adopted_files import decode_adopted_files, encode_adopted_files
from penstock.core.codec.document import decode_document, encode_document
from penstock.core.codec.entry import TaskMessage, decode_entry, decode_message, encode_entry, encode_message
from penstock.core.codec.marker import decode_marker, decode_owner, encode_marker, encode_owner

__all__ = [
    "TaskMessage",
    "decode_adopted_files",
    "decode_document",
    "decode_entry",
    "decode_marker",
    "decode_message",
    "decode_owner",
    "encode_adopted_files",
    "encode_document",
    "encode_entry",
    "encode_marker",
    "encode_message",
    "encode_owner",
]
