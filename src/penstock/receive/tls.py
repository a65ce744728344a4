"""The TLS of a listener."""

import ssl

from penstock.errors import Usage
from penstock.spec.receive import ServerTls


def context_of(settings: ServerTls | None) -> ssl.SSLContext | None:
    """Return the context for a listener, None without TLS. Raises Usage for files that are none."""
    if settings is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: "")
    except (OSError, ValueError) as error:
        raise Usage(
            f"The certificate {settings.certificate_file} with the key {settings.key_file} cannot be used: {error}.",
            remedy="Name PEM files of a certificate and its key, which has no password.",
        ) from error
    return context
