"""Syncs of the log that fail: no call is answered before its commit, and all commits before it, are on the disk."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.jobs.records import NewJob
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import write_lock

from .helpers import enqueue, job, jobs, run

PAGE = 4096


class Disk:
    """What the disk has of the log, as Linux treats a failed sync: the pages that were to be written count as written
    from then on, and a later sync does not write them.
    """

    def __init__(self, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        """How many of the next syncs fail."""
        self._database = database
        self._in_memory = b""
        self._on_disk = bytearray()
        self._rewritten: set[int] = set()
        monkeypatch.setattr(write_lock, "_sync", self.sync)
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        at = os.lseek(file, 0, os.SEEK_CUR) if self._is_log(file) else None
        n = self._write(file, data)
        if at is not None:
            self._rewritten.update(range(at // PAGE, -(-(at + n) // PAGE)))
        return n

    def sync(self, file: int) -> None:
        now = os.pread(file, os.fstat(file).st_size, 0)
        pages = range(-(-len(now) // PAGE))
        dirty = [n for n in pages if self._page(now, n) != self._page(self._in_memory, n)]
        dirty += sorted(self._rewritten)
        self._in_memory, self._rewritten = now, set()
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        self._on_disk.extend(bytes(max(0, len(now) - len(self._on_disk))))
        for n in dirty:
            self._on_disk[n * PAGE : (n + 1) * PAGE] = self._page(now, n)

    def jobs_after_a_power_cut(self, folder: Path) -> set[bytes]:
        """The jobs that are there when the machine starts again."""
        folder.mkdir()
        shutil.copy(self._database, folder / "jobs.db")
        (folder / "jobs.db-wal").write_bytes(self._on_disk)
        connection = sqlite3.connect(folder / "jobs.db")
        try:
            return {id for (id,) in connection.execute("select id from mainspring_jobs")}
        finally:
            connection.close()

    def _is_log(self, file: int) -> bool:
        return os.path.realpath(f"/proc/self/fd/{file}").endswith("-wal")

    @staticmethod
    def _page(log: bytes, n: int) -> bytes:
        return log[n * PAGE : (n + 1) * PAGE]


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(path, monkeypatch)


@pytest.fixture
def full(path: Path, disk: Disk) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path), durability="full")
    run(store.open())
    enqueue(store, job())
    yield store
    run(store.close())


class TestFailedSync:
    @pytest.mark.parametrize("failures", [1, 2, 5])
    def test_answered_jobs_survive_a_power_cut(
        self, full: SqliteStore, disk: Disk, tmp_path: Path, failures: int
    ) -> None:
        answered = set(jobs_ids(full, 3))
        disk.failures = failures
        for _ in range(failures):
            with pytest.raises(StoreUnavailable, match="could not be synced"):
                enqueue(full, job())
        answered.update(jobs_ids(full, 3))
        assert disk.jobs_after_a_power_cut(tmp_path / "restarted") >= answered

    def test_a_repeat_brings_the_first_try_to_the_disk(self, full: SqliteStore, disk: Disk, tmp_path: Path) -> None:
        made = job()
        disk.failures = 1
        with pytest.raises(StoreUnavailable):
            enqueue(full, made)
        assert not enqueue(full, made)[0].created
        assert made.id in disk.jobs_after_a_power_cut(tmp_path / "restarted")

    def test_no_commit_follows_while_the_disk_fails(self, full: SqliteStore, disk: Disk) -> None:
        made = job()
        disk.failures = 2
        with pytest.raises(StoreUnavailable):
            enqueue(full, job())
        with pytest.raises(StoreUnavailable):
            enqueue(full, made)
        assert enqueue(full, made)[0].created

    def test_concurrent_calls_fail_together(self, full: SqliteStore, disk: Disk, tmp_path: Path) -> None:
        async def at_once(*made: NewJob) -> list[object]:
            return await asyncio.gather(
                *(asyncio.to_thread(enqueue, full, each) for each in made), return_exceptions=True
            )

        disk.failures = 1
        made = jobs(8)
        said = run(at_once(*made))
        answered = {each.id for each, reply in zip(made, said, strict=True) if not isinstance(reply, BaseException)}
        assert len(answered) < len(made)
        answered.update(jobs_ids(full, 1))
        assert disk.jobs_after_a_power_cut(tmp_path / "restarted") >= answered


def jobs_ids(store: SqliteStore, n: int) -> list[bytes]:
    """Enqueue ``n`` jobs one by one."""
    made = jobs(n)
    for each in made:
        enqueue(store, each)
    return [each.id for each in made]
