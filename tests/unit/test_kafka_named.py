"""Which options still name what was read."""

import pytest

from penstock.core.model import SourceName
from penstock.errors import SourcesChanged
from penstock.source.kafka.options import require_named
from penstock.spec.source import Source

READ = {"orders": {0: 5, 1: 9}, "orders.eu": {0: 4}}


def source(**options: str) -> Source:
    return Source(format="kafka", options={"kafka.bootstrap.servers": "host:9092", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "new, orders.eu ,orders"},
        {"Subscribe": "orders,orders.eu"},
        {"subscribePattern": r"orders(\..*)?"},
        {"subscribePattern": r"\p{Alpha}+"},
        {"subscribePattern": "^orders"},
        {"subscribePattern": "rder"},
        {"assign": '{"orders": [0, 1, 2], "orders.eu": [0]}'},
    ],
)
def test_what_is_named(options: dict[str, str]) -> None:
    require_named(SourceName("s"), source(**options), READ)


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"subscribe": "orders"}, "topic 'orders.eu'"),
        ({"subscribePattern": "orders$"}, "topic 'orders.eu'"),
        ({"assign": '{"orders": [0, 1]}'}, "topic 'orders.eu'"),
        ({"assign": '{"orders": [1], "orders.eu": [0]}'}, "partition 0 of topic 'orders'"),
    ],
)
def test_what_is_named_no_more(options: dict[str, str], left_out: str) -> None:
    with pytest.raises(SourcesChanged, match=f"Source 's' has read {left_out}, which its options do not name any more"):
        require_named(SourceName("s"), source(**options), READ)
