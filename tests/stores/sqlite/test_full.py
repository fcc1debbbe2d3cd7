"""A full disk: enqueue is refused first, running jobs are still acked, and everything works when space is back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from mainspring.errors import StoreFull
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import files

from .helpers import Worker, batch, job, jobs, states, succeeded

RECORD = b"x" * 20_000


class Disk(Protocol):
    folder: Path

    def fill(self, store: SqliteStore) -> None: ...
    def make_room(self, store: SqliteStore) -> None: ...


class SmallDisk:
    """A real file system of 24 MB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, store: SqliteStore) -> None:
        """As another program would."""
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                while True:
                    try:
                        if ballast.write(b"x" * size) < size:
                            break
                    except OSError:
                        break
        assert files.free_space(str(self.folder)) == 0

    def make_room(self, store: SqliteStore) -> None:
        (self.folder / "ballast").unlink()


class Quota:
    """For users who cannot mount: SQLite itself refuses to grow, and deleting the reserve lets the file grow by as
    much.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.free, self._patch = folder, 1 << 30, monkeypatch
        monkeypatch.setattr(files, "free_space", lambda _: self.free)

    def fill(self, store: SqliteStore) -> None:
        self.free = 0
        self._limit(store, 1)
        given_up = store.database.reserve.release

        def release() -> bool:
            connection = store.database.writer._cursor.connection if store.database.writer._cursor else None
            if not given_up() or connection is None:
                return False
            pages = connection.execute("pragma page_count").fetchone()[0]
            connection.execute(f"pragma max_page_count = {pages + files.RESERVE_SIZE // 4096}")
            return True

        self._patch.setattr(store.database.reserve, "release", release)

    def make_room(self, store: SqliteStore) -> None:
        self.free = 1 << 30
        self._limit(store, 1 << 30)

    def _limit(self, store: SqliteStore, pages: int) -> None:
        store.database.writer.do(lambda tx: tx.cursor.execute(f"pragma max_page_count = {pages}").fetchall())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        yield Quota(folder, monkeypatch)
        return
    yield SmallDisk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Quota(tmp_path, monkeypatch)


@pytest.fixture(params=["small", "quota"])
def disk(request: pytest.FixtureRequest) -> Disk:
    found: Disk = request.getfixturevalue(request.param)
    return found


def look(store: SqliteStore) -> None:
    """Make the next enqueue read the free space again, as it does after a second."""
    store.database.reserve._looked = 0.0


def reserved(store: SqliteStore) -> int:
    path = Path(f"{store.path}-reserve")
    return path.stat().st_size if path.exists() else 0


@pytest.mark.asyncio
class TestFullDisk:
    async def test_acks_work_while_enqueue_is_refused(self, disk: Disk) -> None:
        store = SqliteStore(str(disk.folder / "jobs.db"))
        worker = await Worker(store).join()
        await store.enqueue(batch(*jobs(50, record=RECORD)))
        claims = await worker.take(40)
        disk.fill(store)
        look(store)
        with pytest.raises(StoreFull, match="new jobs are refused"):
            await store.enqueue(batch(job()))
        for claim in claims:
            said = await worker.turn(succeeded(claim, RECORD))  # a result that needs more space than the job frees
            assert (said.lost, said.stale, said.unstorable) == (False, (), ())
        assert await states(store) == {State.READY: 10, State.SUCCEEDED: 40}
        assert reserved(store) == 0
        with pytest.raises(StoreFull):
            store.enqueue_now(batch(job()))
        check = await store.database.write(lambda tx: tx.cursor.execute("pragma integrity_check").fetchall())
        assert check == [("ok",)]
        disk.make_room(store)
        look(store)
        await store.enqueue(batch(job()))
        assert await states(store) == {State.READY: 11, State.SUCCEEDED: 40}
        assert reserved(store) == files.RESERVE_SIZE
        await store.close()

    async def test_a_batch_that_does_not_fit_is_refused_whole(self, disk: Disk) -> None:
        """The free space is enough for an enqueue, but not for this batch."""
        store = SqliteStore(str(disk.folder / "jobs.db"))
        await store.enqueue(batch(job()))
        if isinstance(disk, Quota):
            disk.fill(store)
            disk.free = 1 << 30
        look(store)
        with pytest.raises(StoreFull):
            await store.enqueue(batch(*jobs(1000, record=RECORD)))
        assert await states(store) == {State.READY: 1}
        await store.close()
