"""How many requests a batch takes at places that bill them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEstimate:
    """Estimated requests to a place for a batch with one file there: `small` for a small file, `uploaded` for an uploaded one.

    `look` is the estimate for one check whether a newer run took over.
    """

    small: float = 0.0
    uploaded: float = 0.0
    look: float = 0.0

    def __add__(self, other: "RequestEstimate") -> "RequestEstimate":
        return RequestEstimate(
            small=self.small + other.small, uploaded=self.uploaded + other.uploaded, look=self.look + other.look
        )
