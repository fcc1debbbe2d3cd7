"""E: what a user may expect of the store: nothing to set up, its own clock, versions that never go back."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.errors import SchemaOutdated
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.options.table import options_for
from mainspring.states import State
from mainspring.stores.records import Document
from tests.plugins.outside import Outside
from tests.processes.fleet import ROOT, Fleet, overlaps, until
from tests.timing import short_settings

LIMIT = 60


@pytest.fixture
def fleet(store_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(store_url, tmp_path)
    yield fleet
    fleet.close()


def file_of(app: Mainspring) -> str:
    return app.settings.url.removeprefix("sqlite:///")


# ---- E2 ----------------------------------------------------------------------------------------------

EMBEDDED = """
    from mainspring import Mainspring

    app = Mainspring()

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app.worker():
        print(add.enqueue(2, b=3).result(timeout=60))
"""
SUPERVISED = """
    from mainspring import Mainspring

    app = Mainspring()

    @app.task
    async def show(text: str) -> None:
        print(text, flush=True)

    if __name__ == "__main__":
        show.enqueue("ran in a worker")
        raise SystemExit(app.run(until_empty=True))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user installs: the wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.mark.row("E2")
@pytest.mark.parametrize(("script", "says"), [(EMBEDDED, "5"), (SUPERVISED, "ran in a worker")])
def test_a_script_of_ten_lines_runs_a_job_in_an_empty_directory(
    tmp_path: Path, installed: Path, script: str, says: str
) -> None:
    """The database file is created beside the script and not in the working directory."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "hello.py").write_text(textwrap.dedent(script))
    assert len(textwrap.dedent(script).strip().splitlines()) <= 11
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    ran = subprocess.run(
        [sys.executable, str(home / "hello.py")],
        cwd=elsewhere, env={**env, "PYTHONPATH": str(installed)}, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip()) == (0, says), ran.stderr
    assert (home / "mainspring.db").is_file()
    assert list(elsewhere.iterdir()) == []


# ---- E5 ----------------------------------------------------------------------------------------------


def skewed(folder: Path, seconds: float, *, of: str) -> dict[str, str]:
    """The environment of a process whose clock is off."""
    file = folder / f"skew{seconds:g}"
    file.write_text(str(seconds))
    path = [str(ROOT / "tests" / "processes" / "skewed"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "SKEW_FILE": str(file), "SKEW_OF": of}


@pytest.mark.row("E5")
class TestClocks:
    @pytest.mark.parametrize("hours", [1, -1])
    def test_a_worker_with_a_wrong_clock_takes_and_loses_no_job_and_runs_none_early(
        self, fleet: Fleet, tmp_path: Path, hours: int
    ) -> None:
        right = fleet.start()
        right.wait_ready()
        gate = tmp_path / "gate"
        held = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(3)]
        fleet.started(*held)
        off = fleet.start(env=skewed(tmp_path, hours * 3600, of="process"))
        off.wait_ready()
        later = fleet.tasks.quick.options(delay="30m").enqueue()
        soon = fleet.tasks.quick.options(delay="1s").enqueue()
        beats = {row.id: row.number for row in fleet.workers()}
        until(
            lambda: all(row.number > beats[row.id] + 9 for row in fleet.workers() if row.id in beats),
            what="three leases of beats",
        )
        gate.touch()
        infos = fleet.ended([*held, soon])
        assert {info.state for info in infos} == {State.SUCCEEDED}
        assert [info.attempts for info in infos] == [()] * 4, "nobody was rescued"
        assert {row.id for row in fleet.workers() if not row.lost} == set(beats), "nobody was given up"
        assert later.info().state is State.SCHEDULED, "a delay is counted by the store's clock"

    def test_delays_set_by_a_worker_with_a_wrong_clock_end_in_time(self, fleet: Fleet, tmp_path: Path) -> None:
        """Its retries, snoozes and crashes are delayed by the store's clock."""
        from tests.processes.mixed import Mixed

        app = Mainspring(fleet.url)
        mixed = Mixed(app)
        fleet.start(target="tests.processes.mixed:app", env=skewed(tmp_path, 3600, of="process")).wait_ready()
        jobs = [mixed.again.enqueue(), mixed.snoozer.enqueue(str(tmp_path / "snoozed"))]
        assert {info.state for info in fleet.ended(jobs)} == {State.SUCCEEDED}
        app.close()

    def test_jobs_of_producers_with_wrong_clocks_keep_their_order_of_arrival(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        code = """
            import sys
            from tests.processes.playground import tasks
            print(tasks.quick.enqueue(int(sys.argv[1])).id)
        """
        offsets = [0, 3600, -3600, 0, -3600, 3600]
        for number, seconds in enumerate(offsets):
            env = {**os.environ, "MAINSPRING_URL": fleet.url, **skewed(tmp_path, seconds, of="process")}
            command = [sys.executable, "-c", textwrap.dedent(code), str(number)]
            subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=LIMIT)
        assert fleet.count(State.READY) == len(offsets), "ready at once, whatever the producer's clock says"
        fleet.start(async_slots=1)
        until(lambda: fleet.count(State.SUCCEEDED) == len(offsets))
        ran = [line.job for line in fleet.journal(word="START")]
        assert [number_of(fleet, job) for job in ran] == list(range(len(offsets)))


def number_of(fleet: Fleet, job: str) -> int:
    result: int = fleet.tasks.quick.job(job).result(timeout=LIMIT)
    return result


# ---- E6 ----------------------------------------------------------------------------------------------


@pytest.mark.row("E6")
class TestVersions:
    def test_an_older_document_never_overwrites_a_newer_one(self, app: Mainspring) -> None:
        async def put_three() -> list[Document]:
            store = await app.client.store()
            answers = [
                await store.put_document(Document("schedule", "nightly", v, data)) for v, data in ((2, b"b"), (1, b"a"))
            ]
            await store.put_document(Document("schedule", "nightly", 3, b"c"))
            return [*answers, *await store.documents("schedule")]

        new, still, kept = blocking("put", put_three())
        assert (new.version, new.data) == (2, b"b")
        assert (still.version, still.data) == (2, b"b"), "the newer one stands, and the answer says so"
        assert (kept.version, kept.data) == (3, b"c")

    def test_five_processes_that_open_a_new_store_at_once_migrate_it_once(self, store_url: str, tmp_path: Path) -> None:
        code = """
            import pathlib, sys, time
            from mainspring import Mainspring
            app = Mainspring(sys.argv[1])
            while not pathlib.Path(sys.argv[2]).exists():
                pass
            app.open()
            app.call("anything", int(sys.argv[3])).enqueue()
        """
        gun = tmp_path / "gun"
        command = [sys.executable, "-c", textwrap.dedent(code), store_url, str(gun)]
        racers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True) for n in range(5)]
        gun.touch()
        said = [racer.communicate(timeout=LIMIT)[1] for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * 5, said

        async def look() -> tuple[tuple[int, int], int]:
            store = await app.client.store()
            return await store.migrate(), (await store.count(Query.everything()))[State.READY]

        app = Mainspring(store_url)
        (before, after), jobs = blocking("look", look())
        assert before == after
        assert jobs == 5
        app.close()

    def test_a_schema_newer_than_the_code_is_refused_with_the_fix(self, app: Mainspring, outside: Outside) -> None:
        @app.task(name="note")
        def note() -> None: ...

        app.open()
        app.close()
        outside.raise_version(1)
        for use in (app.open, note.enqueue, lambda: note.job("01a1e142-c0dc-7248-9e5f-e502c01970de").info()):
            with pytest.raises(SchemaOutdated, match="Upgrade Mainspring"):
                use()
        outside.raise_version(-1)
        assert note.enqueue().info().state is State.READY, "nothing was done to it meanwhile"

    def test_a_worker_on_a_newer_schema_logs_the_reason_and_ends(self, app: Mainspring, outside: Outside) -> None:
        app.open()
        app.close()
        outside.raise_version(1)
        with pytest.raises(SchemaOutdated, match="Upgrade Mainspring"), app.worker():
            pass

    @pytest.mark.stores("sqlite")
    def test_an_older_schema_is_migrated_and_the_users_own_tables_are_left_alone(self, app: Mainspring) -> None:
        import sqlite3

        with sqlite3.connect(file_of(app)) as file:
            file.execute("create table orders (n integer)")
            file.execute("insert into orders values (7)")
            file.execute("create table mainspring_meta (namespace text primary key, version integer not null)")

        @app.task(name="note")
        def note() -> None: ...

        assert note.enqueue().info().state is State.READY
        with sqlite3.connect(file_of(app)) as file:
            assert file.execute("select n from orders").fetchall() == [(7,)]


# ---- W3, W7 ------------------------------------------------------------------------------------------


@pytest.mark.row("W7")
def test_an_idle_worker_is_woken_from_another_process(fleet: Fleet) -> None:
    """The poll interval is a minute, so polling cannot explain a hundred fast starts."""
    fleet.start(poll="60s").wait_ready()
    for number in range(100):
        assert fleet.tasks.quick.enqueue(number).result(timeout=LIMIT) == number


@pytest.mark.row("W3", "B4")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("proof", ["same host", "silence"])
def test_with_the_defaults_the_jobs_of_a_killed_process_group_run_again(
    fleet: Fleet, tmp_path: Path, proof: str
) -> None:
    """20 jobs; worker and supervisor are killed together while another worker lives. The death lock or the lease
    proves the death.
    """
    table = options_for("worker")
    defaults: dict[str, Any] = {
        option.name: option.shown_default for option in table if option.name in short_settings()
    }
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    env = {} if proof == "same host" else {"XDG_RUNTIME_DIR": str(runtime)}
    doomed = fleet.start(env=env, **defaults)
    doomed.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(20)]
    fleet.started(*jobs)
    fleet.start(**defaults).wait_ready()
    doomed.kill_whole()
    gate.touch()
    infos = fleet.ended(jobs, limit=210)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.attempt for info in infos} == {1}
    expected = Outcome.CRASHED if proof == "same host" else Outcome.LOST
    assert {attempt.outcome for info in infos for attempt in info.attempts} == {expected}
    assert overlaps(fleet.journal()) == []
