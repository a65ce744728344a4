"""URLs of blob accounts, parsed into store, bucket or container, and prefix.

```
s3://bucket/prefix                                     az://container@account/prefix
gs://bucket/prefix                                     abfss://container@account.dfs.core.windows.net/prefix
hdfs://namenode:8020/prefix
```

As in Hadoop, everything is literal: `%20` is three characters of a key.
"""

import re
from dataclasses import dataclass

from penstock.errors import Usage
from penstock.support.secret import scheme_only

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")

_MISSPELT = re.compile(r"\s+[a-zA-Z][a-zA-Z0-9+.-]*:|(?!\.{0,2}/)[^/]*:/")
"""Excludes texts that begin as a path, and `2024:01`, which is a name."""

MISSPELT = "Write a URL without blanks, its scheme in letters and digits; write ./ before the name of a directory."

_KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az", "wasbs": "az", "hdfs": "hdfs"}
_NAMENODE = re.compile(r"[^:@]+(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?")
"""Anything else between the slashes is likely a key or a password."""
_EXAMPLES = {
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "az": "az://container@account/prefix or abfss://container@account.dfs.core.windows.net/prefix",
    "hdfs": "hdfs://namenode:8020/prefix",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobUrl:
    """A blob account's URL. `kind` is s3, gs, az or hdfs; `bucket` is the bucket or container, empty on HDFS.

    `host` is the storage account, or the NameNode with its port; empty on S3 and GCS. `prefix` has no slash at either end.
    """

    kind: str
    bucket: str
    host: str
    prefix: str

    def __str__(self) -> str:
        host = f"{self.bucket}@{self.host}" if self.bucket and self.host else self.bucket or self.host
        return f"{self.kind}://{host}/{self.prefix}" if self.prefix else f"{self.kind}://{host}"

    @property
    def for_hadoop(self) -> str:
        """The URL for Hadoop's connectors, and so Spark: `s3a://bucket/…`, `abfss://container@account.dfs.core.windows.net/…`."""
        if self.kind == "s3":
            return f"s3a{str(self)[2:]}"
        if self.kind != "az":
            return str(self)
        account, _, domain = self.host.partition(".blob.")
        return f"abfss{str(self)[2:]}".replace(f"@{self.host}", f"@{account}.dfs.{domain or 'core.windows.net'}", 1)

    @property
    def for_delta(self) -> str:
        """The URL for the library for Delta tables, which takes the storage account from its options."""
        return str(self).replace(f"@{self.host}", "", 1) if self.kind == "az" else str(self)

    def key(self, name: str) -> str:
        """Return the full key of `name`, which is relative to the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def name(self, key: str) -> str:
        return key[len(self.prefix) + 1 :] if self.prefix else key


def scheme_of(place: str) -> str:
    """Return the text before the first colon of `place` in lower case, where a URL has its scheme; empty for a path.

    `dbfs:/x` and `C:/x` have one. A name with a colon is a path if `./`, or any other directory, precedes it.
    """
    found = _SCHEME.match(place)
    return found[1].lower() if found else ""


def is_misspelt(place: str) -> bool:
    """Return whether `place` is a misspelt URL, not a directory: a blank before the scheme, or an invalid character in it."""
    return _MISSPELT.match(place) is not None


def is_blob(url: str) -> bool:
    """Return whether `url` has the scheme of a blob account."""
    return url.partition("://")[0].lower() in _KINDS and "://" in url


def parse(url: str) -> BlobUrl:
    """Return `url`, parsed. Raises Usage."""
    scheme, _, rest = url.partition("://")
    kind = _KINDS.get(scheme.lower())
    if kind is None:
        raise Usage(f"{scheme_only(url)} is no URL of a store.", remedy=f"Write one of {', '.join(_EXAMPLES.values())}.")
    authority, _, path = rest.partition("/")
    bucket, at, host = authority.partition("@")
    prefix = path.strip("/")
    if kind == "hdfs":
        found = BlobUrl(kind=kind, bucket="", host=authority, prefix=prefix)
        return _checked(found, url, fine=_NAMENODE.fullmatch(authority) is not None)
    if kind == "az":
        if "?" in url:
            raise Usage(f"{_shown(url.partition('?')[0])} is followed by a query.", remedy="Give a SAS as the option sas_token.")
        found = BlobUrl(kind=kind, bucket=bucket, host=_azure_host(host), prefix=prefix)
        return _checked(found, url, fine=bool(bucket and found.host) and ":" not in bucket + host)
    found = BlobUrl(kind=kind, bucket=authority, host="", prefix=prefix)
    return _checked(found, url, fine=bool(authority) and not at and ":" not in authority)


def hadoop_url(url: str) -> str:
    """Return `url` for Hadoop's file systems, and so Spark, whose scheme for Azure differs."""
    return parse(url).for_hadoop if url.partition("://")[0].lower() == "az" else url


def _azure_host(host: str) -> str:
    """Return the storage account in Azure's public cloud, elsewhere the blob endpoint's host."""
    account, _, rest = host.partition(".")
    domain = rest.removeprefix("dfs.").removeprefix("blob.")
    return account if domain in {"", "core.windows.net"} else f"{account}.blob.{domain}"


def _checked(found: BlobUrl, url: str, *, fine: bool) -> BlobUrl:
    parts = found.prefix.split("/") if found.prefix else []
    if not fine or any(part in {"", ".", ".."} for part in parts):
        raise Usage(f"{_shown(url)} is no URL of a place there.", remedy=f"Write {_EXAMPLES[found.kind]}.")
    return found


def _shown(url: str) -> str:
    """Return `url` without a possible key before the host."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://…" if ":" in rest else url
