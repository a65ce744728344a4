"""Recognition of untrusted server certificates in the error messages of store and database clients."""

_SIGN = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's reason for a certificate of another host, of an unknown authority or out of date; most clients give no other."""


def is_untrusted_certificate(reason: str) -> bool:
    """Return whether a client's message is about an untrusted certificate."""
    return _SIGN in reason
