"""R12, B21, B22: the store is away, frozen, its clock is stepped, or its replies are lost. Live workers lose
nothing.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mainspring import AsyncContext, Context, Mainspring
from mainspring.errors import StoreUnavailable
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.states import State
from mainspring.stores.door import Door, contract_methods
from tests.plugins.outside import Outside
from tests.processes.fleet import Fleet, until
from tests.rows.test_store import skewed
from tests.timing import patience

LIMIT = 60


@pytest.fixture
def fleet(store_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(store_url, tmp_path)
    yield fleet
    fleet.close()


# ---- R12, B22: the store is away ---------------------------------------------------------------------

TROUBLE = re.compile(
    r"^[-0-9:., ]{12,23} (?:\w+ +)?(?P<pid>\d+) .*?(?P<what>the store|(?:sending|running|listening|regist)[a-z ]*?) "
    r"(?P<word>failed|has been failing|works again)\b", re.MULTILINE,
)  # fmt: skip
"""A line of the log about trouble; a supervisor of the tests and a worker write their lines in two orders."""


def troubles(text: str) -> dict[tuple[str, str], list[str]]:
    """What each process said of each trouble, in order."""
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for found in TROUBLE.finditer(text):
        said[found["pid"], found["what"]].append(found["word"])
    return said


@pytest.mark.row("R12", "B22")
@pytest.mark.own_server
def test_an_outage_longer_than_every_lease_loses_no_job_and_charges_no_crash(
    fleet: Fleet, outside: Outside, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """8 jobs run on two workers. Some end while the store is away, and their acks arrive afterwards."""
    lease = patience(1)
    for _ in range(2):
        pretty = {"MAINSPRING_LOG_FORMAT": "text"}
        fleet.start(lease=lease, sweep="200ms", async_slots=4, env=pretty).wait_ready()
    gates = [tmp_path / "during", tmp_path / "after"]
    jobs = [fleet.tasks.wait_for.enqueue(str(gates[n % 2])) for n in range(8)]
    fleet.started(*jobs)
    rows = {row.id for row in fleet.workers()}
    with outside.hold():
        began = time.monotonic()
        gates[0].touch()
        until(lambda: len(fleet.journal(word="END")) == 4, what="bodies end while the store is away")
        until(lambda: time.monotonic() - began > max(10, 3 * lease), what="so long that calls fail more than once")
    gates[1].touch()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert [info.attempts for info in infos] == [()] * 8, "0 rescued, 0 blamed, 0 interrupted"
    assert [len(fleet.journal(job, word="START")) for job in jobs] == [1] * 8
    assert {row.id for row in fleet.workers() if not row.lost} == rows
    assert fleet.ended([fleet.tasks.quick.enqueue()])[0].state is State.SUCCEEDED, "the queue goes on"
    text = ""

    def recovered() -> dict[tuple[str, str], list[str]]:
        nonlocal text
        text += capfd.readouterr().err
        said = troubles(text)
        return said if all(words[-1] == "works again" for words in said.values()) else {}

    said = until(recovered, what="every trouble is said to be over")
    assert {what for _, what in said} == {"the store"}, "one story for all parts of a process"
    for who, words in said.items():  # beats have short limits: on a busy machine they may find trouble of their own
        begun_and_over = [word for word in words if word != "has been failing"]
        assert begun_and_over == ["failed", "works again"] * (len(begun_and_over) // 2), who


@pytest.mark.row("B22")
@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_stores_clock_loses_no_job_and_charges_no_crash(fleet: Fleet, tmp_path: Path, hours: int) -> None:
    """The wall clock of the machine, and so that of the store, jumps while 8 jobs run."""
    env = skewed(tmp_path, 0, of="machine")
    for _ in range(2):
        fleet.start(lease=patience(1), sweep="200ms", env=env, async_slots=4).wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(8)]
    fleet.started(*jobs)
    beats = {row.id: row.number for row in fleet.workers()}
    Path(env["SKEW_FILE"]).write_text(str(hours * 3600))
    until(
        lambda: all(row.number > beats[row.id] + 9 for row in fleet.workers() if row.id in beats),
        what="three leases of beats after the step",
    )
    gate.touch()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert [info.attempts for info in infos] == [()] * 8, "0 rescued, 0 blamed, 0 interrupted"
    assert [len(fleet.journal(job, word="START")) for job in jobs] == [1] * 8
    assert {row.id for row in fleet.workers() if not row.lost} == set(beats)


# ---- B21: replies are lost ---------------------------------------------------------------------------


class Lossy(Door):
    """A store that does its work and whose answer gets lost: once for each call that is named."""

    losing: ClassVar[set[str]] = set()
    lost: ClassVar[list[str]] = []

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        reply = super().enqueue_now(batch, connection)
        self._lose("enqueue")
        return reply

    def _lose(self, name: str) -> None:
        if name in self.losing:
            self.losing.discard(name)
            self.lost.append(name)
            raise StoreUnavailable(f"{name}: the answer was lost")


def _losing(name: str) -> Callable[..., Awaitable[Any]]:
    async def call(self: Lossy, *args: Any, **options: Any) -> Any:
        reply = await getattr(Door, name)(self, *args, **options)
        self._lose(name)
        return reply

    return call


for _name in contract_methods():
    setattr(Lossy, _name, _losing(_name))


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> type[Lossy]:
    """From now on, every store of this process."""
    monkeypatch.setattr(Lossy, "losing", set())
    monkeypatch.setattr(Lossy, "lost", [])
    monkeypatch.setattr("mainspring.stores.door.Door", Lossy)
    return Lossy


@pytest.mark.row("B21")
@pytest.mark.parametrize("call", ["enqueue", "turn", "beat", "promote", "report", "listen", "workers", "retire"])
def test_a_lost_reply_of_any_call_strands_and_doubles_no_job(app: Mainspring, lossy: type[Lossy], call: str) -> None:
    runs: Counter[int] = Counter()
    go_on = threading.Event()

    @app.task(name="on_loop", retries=1, backoff="10ms")
    async def on_loop(ctx: AsyncContext, n: int) -> int:
        runs[n] += 1
        while not go_on.is_set():  # noqa: ASYNC110 - the test opens it from another thread
            await asyncio.sleep(0.01)
        if n == 0 and ctx.attempt == 1:
            raise ValueError("once")
        return n

    @app.task(name="in_thread", retries=0)
    def in_thread(ctx: Context, n: int) -> int:
        runs[n] += 1
        ctx.progress(1, 1)
        return n

    lossy.losing.add(call)
    worker = app.worker()
    with worker:
        jobs = [(on_loop if n % 2 == 0 else in_thread).enqueue(n) for n in range(6)]
        jobs.append(on_loop.options(delay="100ms").enqueue(6))
        until(lambda: call in (*lossy.lost, "retire"), what="a reply is lost")
        go_on.set()
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(7))
    assert lossy.lost == [call]
    assert worker.exit_code == 0
    assert runs == Counter({0: 2, **dict.fromkeys(range(1, 7), 1)})
    infos = [job.info() for job in jobs]
    assert [info.attempt for info in infos] == [2, 1, 1, 1, 1, 1, 1]
    assert {info.crashes for info in infos} == {0}


@pytest.mark.row("B21")
def test_a_lost_reply_of_every_call_strands_and_doubles_no_job(app: Mainspring, lossy: type[Lossy]) -> None:
    runs: Counter[int] = Counter()

    @app.task(name="count", retries=0)
    async def count(ctx: AsyncContext, n: int) -> int:
        runs[n] += 1
        ctx.progress(n, 50)
        return n

    with app.worker():
        for _ in range(5):
            lossy.losing |= {"enqueue", "turn", "beat", "promote", "report", "listen", "workers", "rescue", "prune"}
            jobs = app.enqueue_many(count.s(n) for n in range(len(runs), len(runs) + 10))
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(len(runs) - 10, len(runs)))
    assert set(runs.values()) == {1}
    assert lossy.lost.count("enqueue") == 5
    assert lossy.lost.count("turn") == 5


@pytest.mark.row("B21")
def test_a_cancel_whose_reply_was_lost_can_be_repeated(app: Mainspring, lossy: type[Lossy]) -> None:
    @app.task(name="never")
    async def never() -> None: ...

    job = never.enqueue()
    lossy.losing.add("act")
    with pytest.raises(StoreUnavailable):
        job.cancel()
    assert not job.cancel(), "it had been heard the first time"
    assert job.info().state is State.CANCELLED
