"""What a client's request holds: events, in the forms that clients send them."""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from penstock.errors import Usage
from penstock.journal.event import Event
from penstock.journal.frame import SMALLEST, size_of

KEY, PRODUCER, NUMBER, HEADER = "Penstock-Key", "Penstock-Producer", "Penstock-Sequence", "Penstock-Header-"
PRODUCER_HEADER, NUMBER_HEADER = "penstock-producer", "penstock-sequence"
"""Headers of AMQP, and user properties of MQTT, by which a publisher numbers its messages: 1, 2, 3."""
MOST_EVENTS = 100_000
"""In a request: a body that compresses well could have millions, each of which takes memory."""
_GZIP = 31
_MOST_DIGITS = 19
"""Of a producer's number, which is below 2^63."""
LINES, ARRAY = "application/x-ndjson", "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. `number` is that of its first event; the next ones follow it."""

    content_type: str
    body: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    producer: str | None = None
    number: int | None = None
    remote: str | None = None


class TooLarge(Usage):
    """A request has more bytes than may be."""


def decompressed(body: bytes, encoding: str | None, *, most_bytes: int) -> bytes:
    """Return a request's body without its encoding. Raises TooLarge before it takes more memory than `most_bytes`, Usage."""
    if encoding is None or encoding.lower() == "identity":
        return body
    if encoding.lower() != "gzip":
        raise Usage(f"The body has the encoding {encoding[:40]!r}.", remedy="Send it as it is, or by gzip.")
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise Usage(f"The body is no gzip: {error}.", remedy="Compress it again.") from None
    if len(data) > most_bytes:
        raise TooLarge(f"The request has more than {most_bytes} bytes.", remedy="Send it in parts.")
    if not stream.eof or stream.unused_data:
        raise Usage("The body is no gzip of one part: it is cut, or more follows.", remedy="Compress it again.")
    return data


def request_of(headers: Iterable[tuple[str, str]], body: bytes, *, content_type: str, remote: str | None) -> Request:
    """Return the request with such HTTP headers. Raises Usage."""
    given = list(headers)
    named = {name.lower(): value for name, value in given}
    key = named.get(KEY.lower())
    number = named.get(NUMBER.lower())
    producer = named.get(PRODUCER.lower())
    if number is not None and producer is None:
        raise Usage(f"{NUMBER} needs {PRODUCER} beside it.", remedy="Name the producer.")
    own = [(name[len(HEADER) :], value) for name, value in given if name.lower().startswith(HEADER.lower())]
    return Request(
        content_type=content_type.lower(),
        body=body,
        key=None if key is None else _bytes(key),
        headers=tuple((name, _bytes(value)) for name, value in own),
        producer=None if producer is None else _text(_bytes(producer)),
        number=None if number is None else number_of_producer(_bytes(number)),
        remote=remote,
    )


def events_of(request: Request, *, most_bytes: int) -> Sequence[Event]:
    """Return the events of a request, one at least: lines, the elements of an array, or its body as it is.

    Raises TooLarge for more than MOST_EVENTS, and if what each of them gets of the headers makes more than `most_bytes`; Usage.
    """
    values = list(islice(_values(request), MOST_EVENTS + 1))
    if not values:
        raise Usage("The request has no event.", remedy="Send a body; with an array or lines, one of them at least.")
    if len(values) > MOST_EVENTS:
        raise TooLarge(f"The request has more than {MOST_EVENTS} events.", remedy="Send it in parts.")
    first = Event(
        value=b"",
        key=request.key,
        headers=request.headers,
        producer=request.producer,
        number=request.number,
        remote=request.remote,
    )
    repeated = (size_of(first) - SMALLEST) * (len(values) - 1)
    if repeated > most_bytes:
        raise TooLarge(
            f"Each of {len(values)} events gets the request's headers, which makes more than {most_bytes} bytes.",
            remedy="Send it in parts, or put what the headers say into the events.",
        )
    if request.number is None:
        return [replace(first, value=value) for value in values]
    return [replace(first, value=value, number=request.number + at) for at, value in enumerate(values)]


def numbering_in(headers: Mapping[str, object]) -> tuple[str | None, int | None]:
    """Return producer and number out of the headers of a broker's message. Raises Usage."""
    producer, number = headers.get(PRODUCER_HEADER), headers.get(NUMBER_HEADER)
    if number is not None and producer is None:
        raise Usage(f"{NUMBER_HEADER} needs {PRODUCER_HEADER} beside it.", remedy="Name the producer.")
    return (None if producer is None else _text(_raw(producer))), None if number is None else number_of_producer(_raw(number))


def numbered_event(line: bytes, *, remote: str | None) -> Event:
    """Return the event in a line `PRODUCER NUMBER VALUE`. Raises Usage."""
    producer, _, rest = line.partition(b" ")
    number, _, value = rest.partition(b" ")
    if not producer or not number:
        raise Usage("A line should be PRODUCER NUMBER VALUE.", remedy="Number the lines of a producer 1, 2, 3, and so on.")
    return Event(value=value, producer=_text(producer), number=number_of_producer(number), remote=remote)


def _values(request: Request) -> Iterator[bytes]:
    """Yield one after the other, so that whoever has enough of them stops. Raises Usage."""
    if request.content_type == LINES:
        lines = (found[0].rstrip(b"\r") for found in _LINE.finditer(request.body))
        yield from filter(None, lines)
    elif request.content_type == ARRAY and request.body.lstrip()[:1] == b"[":
        try:
            yield from (element.encode() for element in _elements(request.body.decode()))
        except (ValueError, RecursionError) as error:
            raise Usage(f"The body is no array of JSON: {error}.", remedy="Correct it; nothing of it was taken.") from None
    elif request.body:
        yield request.body


_LINE = re.compile(rb"[^\n]+")
_BLANKS = re.compile(r"[ \t\n\r]*")


def _elements(text: str) -> Iterator[str]:
    """Yield the elements of a JSON array as they stand there: written anew, numbers could be others. Raises ValueError."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=str, parse_float=str)  # of any length
    at = _behind_blanks(text, _behind_blanks(text, 0) + 1)
    if text[at : at + 1] == "]":
        at += 1
    else:
        while True:
            _, end = decoder.raw_decode(text, at)
            yield text[at:end]
            at = _behind_blanks(text, end)
            if text[at : at + 1] != ",":
                break
            at = _behind_blanks(text, at + 1)
        if text[at : at + 1] != "]":
            raise ValueError(f"a comma or the end of the array is expected at character {at}")
        at += 1
    if _behind_blanks(text, at) != len(text):
        raise ValueError(f"more follows the array at character {at}")


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _bytes(text: str) -> bytes:
    """Return the bytes of a header, which HTTP servers decode as UTF-8 with what is not escaped."""
    return text.encode("utf-8", "surrogateescape")


def number_of_producer(digits: bytes) -> int:
    """Return a producer's number. Raises Usage. How many digits Python would take is a setting of its own."""
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise Usage(
            f"The number of an event is {digits[: 2 * _MOST_DIGITS].decode('ascii', 'backslashreplace')!r}, and should have 1 to "
            f"{_MOST_DIGITS} digits.",
            remedy="Number the events of a producer 1, 2, 3, and so on.",
        )
    return int(digits)


def _raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Usage("The name of a producer should be UTF-8.", remedy="Give it another name.") from None
