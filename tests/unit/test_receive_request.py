import pytest

from penstock.errors import Usage
from penstock.receive.request import Request, events_of, numbered_event, request_of


def values_of(body: bytes) -> list[bytes]:
    return [event.value for event in events_of(Request(content_type="application/json", body=body), most_bytes=1000)]


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"[1]", [b"1"]),
        (b" [1.10, 12345678901234567890.123 ,1e400,-0.0]\n", [b"1.10", b"12345678901234567890.123", b"1e400", b"-0.0"]),
        ('[{"é" : [1, 2]}, "\\u00e9", null,[]]'.encode(), ['{"é" : [1, 2]}'.encode(), b'"\\u00e9"', b"null", b"[]"]),
        (b'[{"a": 1, "a": 2}]', [b'{"a": 1, "a": 2}']),
        (b'{"a": [1]}', [b'{"a": [1]}']),
        (b"[" + b"1" * 5_000 + b"]", [b"1" * 5_000]),
    ],
)
def test_elements_of_an_array_are_taken_as_they_are_written(body: bytes, values: list[bytes]) -> None:
    assert values_of(body) == values


@pytest.mark.parametrize(
    "body", [b"[", b"[1", b"[1,", b"[1,]", b"[1 2]", b"[1]]", b"[1] x", b"[NaN]", b"[Infinity]", b"[']", b"[\xff]", b"[" * 50_000]
)
def test_what_is_no_array_is_refused_whole(body: bytes) -> None:
    with pytest.raises(Usage, match="The body is no array of JSON"):
        values_of(body)


def test_an_array_without_elements_has_no_event() -> None:
    with pytest.raises(Usage, match="no event"):
        values_of(b" [ ] ")


@pytest.mark.parametrize("number", ["1" * 5_000, "1" * 20, "-1", "1_0", "x", "\udce9", "\u0661"])
def test_what_is_no_number_is_refused(number: str) -> None:
    given = {"Penstock-Producer": "p", "Penstock-Sequence": number}
    with pytest.raises(Usage, match="should have 1 to 19 digits"):
        request_of(given.items(), b"x", content_type="text/plain", remote=None)
    with pytest.raises(Usage, match="should have 1 to 19 digits"):
        numbered_event(f"p {number} x".encode("utf-8", "surrogateescape"), remote=None)


def test_a_producer_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(Usage, match="should be UTF-8"):
        request_of([("Penstock-Producer", "caf\udce9")], b"x", content_type="text/plain", remote=None)
    with pytest.raises(Usage, match="should be UTF-8"):
        numbered_event(b"caf\xe9 1 x", remote=None)
    assert numbered_event("caf\u00e9 7 a b".encode(), remote=None).producer == "caf\u00e9"


def test_a_number_without_a_producer_is_refused() -> None:
    with pytest.raises(Usage, match="Penstock-Sequence needs Penstock-Producer"):
        request_of([("Penstock-Sequence", "1")], b"x", content_type="text/plain", remote=None)
