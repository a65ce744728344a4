"""A lane's share of a batch as a task: any process can publish it, and the lane's fence and marker make it visible once."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from penstock.core.model import Publication
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import translate_errors
from penstock.sink.kafka.lane import Lane
from penstock.sink.kafka.target import KafkaSettings
from penstock.sink.spool import SpoolRoot, spool_in_task
from penstock.sink.spool.place import Claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTask:
    """A `PublishTask` of one lane. `claimed`: the spool as the driver knows it, where the rows of `share` lie.

    Whoever publishes the lane begins by fencing everybody who did before: an attempt that was given up, a speculative one, or a
    task of an older driver. A fenced one looks at the marker, and has done its work if that shows the share.
    """

    number: int
    share: Publication
    wanted: KafkaSettings
    bootstrap: str
    options: Mapping[str, str] = field(repr=False)
    spool: SpoolRoot
    claimed: Claimed
    max_record_bytes: int

    def run(self) -> tuple[bool]:
        """Publish the share in a transaction of its own producer, unless the marker shows it, and return whether it did.

        Raises as `KafkaSink.publish`.
        """
        spool = spool_in_task(self.share, root=self.spool, claimed=self.claimed)
        clients = Clients(self.bootstrap, self.options)
        lane = Lane(clients, self.number, wanted=self.wanted, max_record_bytes=self.max_record_bytes)
        with closing(lane), translate_errors(clients):
            return (lane.publish(self.share, spool.rows_of).already,)
