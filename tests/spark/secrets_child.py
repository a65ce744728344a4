"""A run of a pipeline file in a process of its own that notes what other people of the machine could see of it.

`python -m tests.spark.secrets_child FILE SEEN` writes an object into SEEN: the command lines of all processes that it started,
their environment, every page of Spark's UI, and the addresses that the JVM listened on.
"""

import json
import os
import re
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from penstock.run.pipeline import Pipeline

PAGES = ("/", "/jobs/", "/stages/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/storage/")
API = ("", "/environment", "/sql?details=true", "/jobs", "/stages", "/allexecutors")
AS_MANY = 60
LISTENING = "0A"


def main(file: str, seen: str) -> None:
    """Run `file` once through, and look all the time."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    done = threading.Event()
    looking = threading.Thread(target=look, args=(found, done))
    looking.start()
    try:
        pipeline = Pipeline.from_file(file)
        spark = pipeline.session()
        pipeline.start(spark).run_until(lambda: False, grace_s=60)
        url = spark.sparkContext.uiWebUrl
        found["ui address"].add(str(url))
        found["ui"].update(pages(url or ""))
        found["listens"].update(listening_addresses())
        spark.stop()
    finally:
        done.set()
        looking.join()
        Path(seen).write_text(json.dumps({place: sorted(texts) for place, texts in found.items()}))


def look(found: "defaultdict[str, set[str]]", done: threading.Event) -> None:
    """Sample the processes below this one until the run is over."""
    while not done.wait(0.02):
        for process in children():
            for place, name in (("command line", "cmdline"), ("environment", "environ")):
                try:
                    parts = Path(f"/proc/{process}/{name}").read_bytes().split(b"\0")
                except OSError:  # it ended
                    continue
                found[place].update(part.decode(errors="replace") for part in parts)


def children() -> list[str]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:  # it ended
                continue
    mine = {str(os.getpid())}
    while more := {process for process, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sorted(mine - {str(os.getpid())})


def pages(url: str) -> Iterator[str]:
    """Every page that the UI leads to, and what its REST interface answers."""
    answer = fetched(f"{url}/api/v1/applications")
    [application] = [each["id"] for each in json.loads(answer)]
    waiting = [f"{url}{page}" for page in PAGES] + [f"{url}/api/v1/applications/{application}{call}" for call in API]
    known = set(waiting)
    while waiting and len(known) < AS_MANY:
        text = fetched(waiting.pop(0))
        yield text
        links = {url + link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"]*)"', text) if "/static/" not in link}
        waiting += sorted(links - known)
        known |= links


def fetched(url: str) -> str:
    try:
        with urlopen(url, timeout=20) as answer:
            text: str = answer.read().decode(errors="replace")
            return text
    except URLError as error:
        return str(error)


def listening_addresses() -> Iterator[str]:
    """Address and port of every socket on which a process below this one waits for connections."""
    inodes = set()
    for process in children():
        for handle in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(handle.readlink().name)
            except OSError:  # closed meanwhile
                continue
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and f"socket:[{words[9]}]" in inodes:
                address, _, port = words[1].partition(":")
                packed = b"".join(bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8))
                yield f"{socket.inet_ntop(family, packed)} {int(port, 16)}"


if __name__ == "__main__":
    main(*sys.argv[1:])
