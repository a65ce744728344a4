import pytest
from pydantic_core import PydanticCustomError

from penstock.spec.scalar import duration_ms, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128MB", 128_000_000),
        ("64MiB", 64 * 1024 * 1024),
        ("1.5 GB", 1_500_000_000),
        ("1000b", 1000),
        (" 7 kib ", 7 * 1024),
        (4096, 4096),
        ("4096", 4096),
    ],
)
def test_sizes_are_bytes(text: object, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["big", "", "-1MB", "1 MBs", 0, "0MB", 1.5, True, None, ["1MB"]])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError, match="should be a size"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10_000),
        ("500ms", 500),
        ("5 minutes", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0.5s", 500),
        (0, 0),
        ("0", 0),
    ],
)
def test_durations_are_milliseconds(text: object, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", [10, "10", "10 parsecs", "s", "", True, False, None])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError, match="should be a duration with a unit"):
        duration_ms(text)
