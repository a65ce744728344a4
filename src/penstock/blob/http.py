"""Plain HTTP connections whose requests are counted, for the clients that are built upon `requests`."""

from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from penstock.blob.counting import sent


class CountedRequests(HTTPAdapter):
    """Mounted on a session, it counts what goes out."""

    def send(self, request: PreparedRequest, *args: Any, **settings: Any) -> Response:
        """As `HTTPAdapter.send`."""
        sent()
        return super().send(request, *args, **settings)
