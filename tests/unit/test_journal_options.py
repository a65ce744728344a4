"""What a source `format: journal` may say in the pipeline file."""

from typing import Any

import pytest

from penstock.errors import Usage
from penstock.spec.source import Source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "reads a journal but has neither path nor url"),
        ({"path": "s3://b/j"}, "path should be a directory on this machine or mounted on it"),
        ({"path": "j", "schema": "a INT"}, "schema does not go with format: journal"),
        ({"path": "j", "options": {"maxFilesPerTrigger": 1}}, "maxFilesPerTrigger is not an option of a journal"),
        ({"path": "j", "options": {"startingOffsets": "first"}}, "startingOffsets should be earliest or latest, found 'first'"),
        ({"path": "j", "options": {"maxBytesPerTrigger": "1MB"}}, "maxBytesPerTrigger should be a whole number"),
        ({"path": "j", "reader": "python"}, "reader is for format: kafka only"),
    ],
)
def test_a_wrong_source_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises((Usage, ValueError), match=message):
        Source(format="journal", **given)
