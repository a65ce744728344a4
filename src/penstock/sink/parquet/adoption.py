"""One account, taken over from Spark's file sink: which of its files the sink's log names, and which no batch has."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.core.adopted_files import AdoptedFiles
from penstock.core.model import BatchId
from penstock.errors import Refused
from penstock.sink.parquet.account import Area, StoredFile
from penstock.sink.parquet.directory.adoption import adopt_files, left_out_in, query_ran_since, set_aside_in
from penstock.sink.parquet.directory.area import DirectoryArea
from penstock.sink.parquet.layout import attempt_of, is_parquet, unescape


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesToAdopt:
    """What the account begins with, and the files of no batch, which move to another directory."""

    adopted: AdoptedFiles
    others: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(self.adopted.sizes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAdoption:
    """An account that is to go on where a query stopped. `keeps_files`: the sink takes files of others as they are."""

    url: str
    area: Area
    partition_by: tuple[str, ...]
    keeps_files: bool

    @property
    def log(self) -> Path | None:
        """The log of Spark's file sink, None if there is none, or it was set aside. Raises Refused if it is in a store."""
        log = self.area.spark_log()
        return None if log is None else self._directory(log).root / Path(log).name

    @property
    def adopted(self) -> AdoptedFiles | None:
        """What an earlier call noted that the account begins with."""
        return self.area.adopted()

    @property
    def left_out(self) -> Path:
        """Where files of no batch move to."""
        return left_out_in(self._directory(self.url).staging)

    def query_ran_since(self, found: AdoptedFiles) -> Refused:
        """Return the refusal of a log that began anew after `found` was noted and the log moved."""
        directory = self._directory(self.url)
        return query_ran_since(found, directory.root, directory.staging)

    def first_file(self) -> str | None:
        """Return the name of some file that readers find, None if there is none."""
        return next((file.name for file in self.area.files()), None)

    def plan(self, logged: Mapping[str, int], batch_id: BatchId) -> FilesToAdopt:
        """Return what is to be done by a log that names the files `logged`, by absolute path, up to batch `batch_id`.

        Raises Refused if the log is of another directory, or a file is not as it says.
        """
        sizes = {self._name_of(path): size_bytes for path, size_bytes in logged.items()}
        there = {file.name: file for file in self.area.files()}
        for name, size_bytes in sizes.items():
            self._require_as_logged(name, size_bytes, there.get(name))
        own = next((name for name in there if attempt_of(name) is not None), None)
        if own is not None:
            raise Refused(
                f"{self.url} holds {own}, which Penstock delivered, beside the log of Spark's file sink: both filled it.",
                remedy="Name an empty directory, and let readers read both.",
            )
        others = tuple(sorted(there.keys() - sizes.keys()))
        return FilesToAdopt(adopted=AdoptedFiles(batch_id=batch_id, sizes=sizes), others=others)

    def carry_out(self, planned: FilesToAdopt) -> None:
        """Do what is planned, or the rest of it. Raises Refused, PublishFailed, Retryable."""
        directory = self._directory(self.url)
        adopt_files(directory.root, directory.staging, planned.adopted, planned.others)

    def set_aside(self, planned: FilesToAdopt) -> Path:
        """Return where the log moves to."""
        return set_aside_in(self._directory(self.url).staging, planned.adopted)

    def _directory(self, what: str) -> DirectoryArea:
        if not isinstance(self.area, DirectoryArea):
            raise Refused(
                f"{what} is in a store: only a directory can be taken over from Spark's file sink.",
                remedy="Name an empty account, and let readers read both.",
            )
        return self.area

    def _name_of(self, path: str) -> str:
        given = self._directory(self.url).root
        for root in (given, given.resolve()):
            if Path(path).is_relative_to(root):
                return Path(path).relative_to(root).as_posix()
        raise Refused(
            f"The log of Spark's file sink in {self.url} names {path}, which is not below it: the directory was moved or copied.",
            remedy="Name the directory by the path that Spark wrote to.",
        )

    def _require_as_logged(self, name: str, size_bytes: int, found: StoredFile | None) -> None:
        if not is_parquet(name):
            raise Refused(
                f"Spark's file sink wrote {name} into {self.url}, expected files of Parquet.",
                remedy="Name an empty directory, and let readers read both.",
            )
        layout = tuple(unescape(directory.partition("=")[0]) for directory in name.split("/")[:-1])
        if layout != self.partition_by:
            raise Refused(
                f"The files in {self.url} are partitioned by {', '.join(layout) or 'nothing'}, and partition_by is "
                f"{', '.join(self.partition_by) or 'nothing'}: no reader could read both as one table.",
                remedy="Set partition_by as the query had it, or name an empty account.",
            )
        if found is None or found.size_bytes != size_bytes:
            state = "is not there" if found is None else f"has {found.size_bytes} bytes"
            raise Refused(
                f"{self.url}/{name} {state}, and the log of Spark's file sink names it with {size_bytes} bytes.",
                remedy=f"Put it back from a copy; what an earlier call moved is in {self.left_out}.",
            )
