"""The requests of one decided batch: under which keys they are sent, and that each lane sends its own in their order."""

import json
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from penstock.core.faults import FaultPoint
from penstock.core.model import Publication
from penstock.errors import OutcomeUnknown, Retryable
from penstock.sink.http.client import Client, Endpoint
from penstock.sink.http.layout import CONTENT_TYPES, Layout, Request
from penstock.sink.spool import SpoolRoot, spool_in_task
from penstock.sink.spool.place import Claimed
from penstock.sink.table.marker import identity

REQUEST = FaultPoint("http.request", "A request with rows of a decided batch is sent.")


def post(client: Client, request: Request, publication: Publication, layout: Layout) -> None:
    """Send a request of `publication` under its key. Raises what `Client.post` raises."""
    headers = {
        "Content-Type": CONTENT_TYPES[layout.body],
        "Penstock-Pipeline": quote(publication.pipeline),
        "Penstock-Sink": quote(publication.sink),
        "Penstock-Batch": str(publication.batch.batch_id),
        "Penstock-Position": str(publication.position),
        "Penstock-Part": request.name,
    }
    with REQUEST.around(error=_not_sent, lost=_answer_lost):
        client.post(request.body, key=_key_of(publication, request), headers=headers)  # I2


def _key_of(publication: Publication, request: Request) -> str:
    """Return the key of a request: every repetition has it, and no request with other rows, of whatever ledger."""
    pipeline, sink = quote(publication.pipeline, safe=""), quote(publication.sink, safe="")
    return f"{pipeline}/{sink}/{publication.position}/{identity_of(publication)}/{request.name}"


def identity_of(publication: Publication) -> str:
    """Return a text that no other batch has: a hash of the ledger and of what the batch is."""
    known = [publication.ledger_id, *identity(publication).values()]
    return sha256(json.dumps(known).encode()).hexdigest()[:16]


def _not_sent(point: str) -> Retryable:
    return Retryable(f"{point} failed.", remedy="Start again.")


def _answer_lost(point: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"{point} lost its answer.", remedy="Start again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTask:
    """A `PublishTask` that sends the requests of one lane in their order, and returns how many rows they had.

    Only for an endpoint that remembers keys: an attempt that goes on after it was given up, even beside later batches, repeats
    requests that were answered. `claimed`: the spool as the driver knows it.
    """

    number: int
    share: Publication
    layout: Layout
    endpoint: Endpoint
    spool: SpoolRoot
    claimed: Claimed

    def run(self) -> tuple[int]:
        spool = spool_in_task(self.share, root=self.spool, claimed=self.claimed)
        client, sent = Client(self.endpoint), 0
        with spool.rows_of(self.share) as rows:
            for request in self.layout.divided(rows, self.share.row_digest, only=self.number):
                post(client, request, self.share, self.layout)
                sent += request.rows
        return (sent,)
