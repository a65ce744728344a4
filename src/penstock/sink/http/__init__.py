"""The HTTP sink: posts rows as JSON, each request under a key that is the same at every repetition.

A decided batch is divided into requests by its rows alone (`layout.py`), so every repetition sends the same bodies under the same
keys. An endpoint that remembers the keys recognises what it has (IETF draft-ietf-httpapi-idempotency-key-header), and delivery is
exactly once; to any other endpoint it is at least once. Nothing can be read back there. So the sink notes in its spool up to
which position everything was answered, and a later run does not send that again: an endpoint forgets its keys some day.
"""
