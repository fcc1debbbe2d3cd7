"""A file that is no database, is damaged, full, read-only or in the wrong place: refused with the fix, nothing lost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.errors import StoreCorrupt, StoreFull, StoreMisconfigured, UnsupportedFileSystem
from mainspring.states import State
from tests.rows.test_queue import total
from tests.rows.test_store import file_of

LIMIT = 60

pytestmark = pytest.mark.stores("sqlite")


def with_jobs(app: Mainspring, count: int = 200) -> Path:
    """Enqueue some jobs, let go of the file, and return it; the write-ahead log is folded in."""
    app.enqueue_many(app.call("anything", n) for n in range(count))
    app.close()
    with sqlite3.connect(file_of(app)) as file:
        file.execute("pragma wal_checkpoint(truncate)")
    file.close()
    return Path(file_of(app))


class TestDamage:
    def test_a_file_that_is_not_a_database_is_refused(self, app: Mainspring) -> None:
        Path(file_of(app)).write_text("my shopping list\n" * 1000)
        for use in (app.open, app.call("anything").enqueue):
            with pytest.raises(StoreCorrupt, match=r"(?s)not a database.*sqlite:////.*\n  .*restore a backup"):
                use()
        assert Path(file_of(app)).read_text().startswith("my shopping list"), "it is left as it was"

    def test_a_directory_in_place_of_the_database_file_is_refused(self, app: Mainspring) -> None:
        Path(file_of(app)).mkdir()
        with pytest.raises(StoreCorrupt, match=r"is a directory.*\n  Name a file inside it"):
            app.open()

    def test_a_database_file_in_a_missing_directory_is_refused(self, tmp_path: Path) -> None:
        app = Mainspring(f"sqlite:///{tmp_path}/no/such/jobs.db")
        with pytest.raises(StoreMisconfigured, match=r"does not exist.*\n  mkdir -p .*no/such"):
            app.open()

    def test_a_damaged_page_is_reported(self, app: Mainspring) -> None:
        path = with_jobs(app)
        data = bytearray(path.read_bytes())
        for page in range(2, len(data) // 4096):
            data[page * 4096 : page * 4096 + 512] = b"\xde\xad\xbe\xef" * 128
        path.write_bytes(data)
        with pytest.raises(StoreCorrupt, match=r"damaged.*\n  .*keep a copy"):
            app.open()
        with pytest.raises(StoreCorrupt), app.worker():
            pass

    def test_a_truncated_database_file_is_reported(self, app: Mainspring) -> None:
        path = with_jobs(app)
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(StoreCorrupt, match="damaged"):
            app.open()

    def test_a_truncated_write_ahead_log_loses_only_the_transactions_cut_off(
        self, app: Mainspring, tmp_path: Path
    ) -> None:
        """SQLite replays the complete transactions that are left in the log and never a part of one."""
        with_jobs(app, 100)
        for n in range(100, 150):
            app.call("anything", n).enqueue()
        copy = tmp_path / "copy.db"
        copy.write_bytes(Path(file_of(app)).read_bytes())
        log = Path(file_of(app) + "-wal").read_bytes()
        Path(f"{copy}-wal").write_bytes(log[: len(log) * 2 // 3 + 7])
        other = Mainspring(f"sqlite:///{copy}")
        assert 100 < total(other) < 150
        job = other.call("anything", 0).enqueue()
        assert job.info().state is State.READY
        other.close()

    def test_a_database_file_on_a_network_file_system_is_refused(
        self, app: Mainspring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mounts = f"36 25 0:32 / / rw - ext4 /dev/sda rw\n99 36 0:50 / {tmp_path} rw,relatime - nfs4 server:/jobs rw\n"
        monkeypatch.setattr("mainspring.stores.sqlite.driver.files._mounts", lambda: mounts)
        with pytest.raises(UnsupportedFileSystem, match=r"\(nfs4\).*\n  Put the file on a local disk, or use Postgre"):
            app.open()
        assert not Path(file_of(app)).exists()


# ---- read-only ---------------------------------------------------------------------------------------

PLAIN_USER = """
    import ctypes, os, sys
    if os.geteuid() == 0:  # root may write what is read-only; without these two capabilities it may not
        for capability in (1, 2):
            assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
OPEN = """
    import sys
    from mainspring import Mainspring
    try:
        Mainspring(sys.argv[1]).open()
    except Exception as error:
        print(type(error).__name__, error, sep=": ")
"""


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_read_only_database_is_refused_with_the_fix(app: Mainspring, what: str) -> None:
    path = with_jobs(app, 3)
    locked = path if what == "file" else path.parent
    mode = locked.stat().st_mode
    locked.chmod(0o444 if what == "file" else 0o555)
    try:
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PLAIN_USER), "-c", textwrap.dedent(OPEN), app.settings.url],
            capture_output=True, text=True, timeout=LIMIT, check=True,
        ).stdout  # fmt: skip
    finally:
        locked.chmod(mode)
    assert said.startswith("StoreReadOnly: ")
    assert str(path) in said
    assert "\n  " in said
    assert "write permission" in said
    assert total(app) == 3


# ---- full --------------------------------------------------------------------------------------------


def test_a_store_at_its_size_limit_refuses_jobs_and_accepts_acks(app: Mainspring) -> None:
    @app.task(name="note")
    def note(n: int, text: str = "") -> int:
        return n

    jobs = [note.enqueue(n) for n in range(50)]
    stored = total(app)
    limit_pages(app)
    with pytest.raises(StoreFull, match=r"full.*\n  Free disk space"):
        app.enqueue_many(note.s(n, "x" * 10_000) for n in range(1000))
    assert total(app) == stored, "all or nothing"
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(50))


def limit_pages(app: Mainspring) -> None:
    """No page more than there is, for what this app enqueues."""

    async def limit() -> None:
        inner: Any = (await app.client.store()).inner  # type: ignore[attr-defined]  # the engine behind the door
        await inner.database.write(lambda tx: tx.cursor.execute("pragma max_page_count = 1").fetchall())

    blocking("limit", limit())


FULL = """
    import json, os, sys
    from mainspring import Mainspring
    from mainspring.errors import StoreFull

    app = Mainspring(f"sqlite:///{sys.argv[1]}/jobs.db", lease="3s", sweep="500ms", poll="200ms")

    @app.task(name="note", retries=0)
    def note(n: int) -> int:
        return n

    jobs = [note.enqueue(n) for n in range(100)]
    said = {}
    with open(sys.argv[1] + "/other", "wb", buffering=0) as other:  # another program fills the disk
        try:
            while other.write(b"x" * 65536):
                pass
        except OSError as error:
            said["disk"] = error.strerror
    import time
    time.sleep(1.1)  # the room is looked at once a second
    try:
        note.enqueue(100)
    except StoreFull as error:
        said["enqueue"] = str(error)
    with app.worker():
        said["results"] = [job.result(timeout=60) for job in jobs] == list(range(100))
        os.unlink(sys.argv[1] + "/other")
        time.sleep(1.1)
        said["again"] = note.enqueue(101).result(timeout=60)
    print(json.dumps(said))
"""


def test_on_a_full_disk_enqueue_is_refused_and_acks_pass(tmp_path: Path) -> None:
    """The test mounts a disk of 24 MB in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=24m tmpfs "{disk}" && exec "$@"'
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    ran = subprocess.run(
        [*namespace, "sh", "-c", mount, "sh", sys.executable, "-c", textwrap.dedent(FULL), str(disk)],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["disk"] == "No space left on device"
    assert "new jobs are refused" in said["enqueue"]
    assert "\n  Free disk space" in said["enqueue"]
    assert said["results"], "what was stored ran and was reported"
    assert said["again"] == 101
