"""The vendors' commands that remedies name, carried out by client libraries, since the tools themselves are not installed."""

import shlex
from collections.abc import Callable, Mapping

from tests.servers.az import ACCOUNT
from tests.servers.fixtures import server


def carry_out(remedy: str) -> None:
    """Run the command that `remedy` names between backticks. Any other word in it than those that are known is an error."""
    _, command, _ = remedy.split("`")
    words = shlex.split(command)
    _KNOWN[words[0]](words[1:])


def _aws(words: list[str]) -> None:
    s3, copy, source, target, directive, replace, metadata, note = words
    assert (s3, copy, directive, replace, metadata) == ("s3", "cp", "--metadata-directive", "REPLACE", "--metadata")
    assert source == target
    bucket, _, key = target.removeprefix("s3://").partition("/")
    server("s3").client().copy_object(
        Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": key}, MetadataDirective="REPLACE", Metadata=_entry(note)
    )


def _az(words: list[str]) -> None:
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert words[:4] == ["storage", "blob", "metadata", "update"]
    assert options.pop("--account-name") == ACCOUNT
    blob = server("az").client().get_blob_client(options.pop("--container-name"), options.pop("--name"))
    blob.set_blob_metadata(_entry(options.pop("--metadata")))
    assert not options


def _gcloud(words: list[str]) -> None:
    storage, objects, update, url, note = words
    assert (storage, objects, update) == ("storage", "objects", "update")
    bucket, _, name = url.removeprefix("gs://").partition("/")
    blob = server("gs").client().bucket(bucket).blob(name)
    blob.metadata = _entry(note.removeprefix("--update-custom-metadata="))
    blob.patch()


def _entry(note: str) -> dict[str, str]:
    key, _, value = note.partition("=")
    return {key: value}


_KNOWN: Mapping[str, Callable[[list[str]], None]] = {"aws": _aws, "az": _az, "gcloud": _gcloud}
