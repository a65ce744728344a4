"""TLS of the receiver as a client of brokers."""

import ssl

from penstock.errors import Usage
from penstock.spec.receive import ClientTls


def client_context(tls: ClientTls, *, key: str) -> ssl.SSLContext:
    """Return the TLS that `tls` asks for. `key`: where that is in the pipeline file. Raises Usage."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=lambda: "")
    except (OSError, ValueError) as cause:  # an SSLError is an OSError
        raise Usage(f"The certificates of {key} cannot be used: {cause}.", remedy="Give PEM files.") from cause
    return context
