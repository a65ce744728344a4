"""What people read when settings that they made in code are wrong."""

import pytest
from tests.unit.test_spec_errors import PARQUET_KEYS

from penstock.errors import Usage
from penstock.spec.pipeline import Trigger
from penstock.spec.sink import Parquet
from penstock.spec.table import SQLite


def test_mistakes_in_code_name_the_settings() -> None:
    with pytest.raises(Usage) as caught:
        Parquet(acounts={})  # type: ignore[call-arg]
    assert (caught.value.message, caught.value.remedy) == (
        "Parquet: acounts is not a known key.",
        f"Did you mean accounts? {PARQUET_KEYS}",
    )
    with pytest.raises(Usage, match=r"Parquet: accounts.a should be a file URL with a path, found the host 'b'\."):
        Parquet(accounts={"a": "file://b/c"})
    with pytest.raises(Usage, match=r"SQLite: url is missing\."):
        SQLite(table="t")  # type: ignore[call-arg]
    with pytest.raises(Usage, match=r"Trigger: is empty\."):
        Trigger()
