"""A server's certificate that is not trusted, as the clients of all stores and databases tell of it."""

_SIGN = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for a certificate of another host, of an unknown authority or out of date; most clients pass on no more."""


def is_distrusted(reason: str) -> bool:
    """Whether a client's message tells of one."""
    return _SIGN in reason
