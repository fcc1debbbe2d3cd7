"""Process slots: bodies of ``executor="process"`` tasks, each in a child process of the pool.

A child gets one job, or a few short ones, and sends the end of each. How many wait in a child follows from the recent
run times: bodies of less than 10 ms are sent ahead, so a child does not wait for the next one. When a body takes long,
the jobs behind it are taken back, and go to the child that is free next.

When a child dies, the shared state of the worker names the job that ran in it. This job has crashed, unless the worker
itself killed the child; the jobs behind it go to another child. See ``pools/__init__.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mainspring.common.clock import boottime
from mainspring.common.ids import id_text
from mainspring.errors import ChildDied
from mainspring.jobs.outcomes import Ack
from mainspring.pools.process import PoolProcess, describe_exit
from mainspring.pools.records import (
    BodyStuck,
    BodyWaits,
    ChildTarget,
    Close,
    EndJob,
    FromChild,
    ImportFailed,
    JobEnded,
    JobReport,
    JobsGivenBack,
    JobToRun,
    Ready,
    RunJobs,
    TakeBack,
)
from mainspring.pools.restart import PoolRestarts
from mainspring.pools.settings import PoolSettings
from mainspring.worker import process_tree
from mainspring.worker.run import classify
from mainspring.worker.run.attempt import Ending, RunEnvironment, RunningAttempt
from mainspring.worker.run.context_reports import Stream
from mainspring.worker.run.slots.base import ClaimAhead, Finish

if TYPE_CHECKING:
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.run.executor import Executor
    from mainspring.worker.run.slots.lending import SlotLender
    from mainspring.worker.run.timeouts import AttemptTimeouts

log = logging.getLogger("mainspring.pool")

MOST_AHEAD = 64
"""Most jobs that wait in one child behind the running one."""
LONG = 0.05
"""Seconds after which the jobs behind a body are taken back for a child that is free."""
TAKE_BACK_AFTER = 1.0
"""Seconds after which these jobs are taken back although no child is free."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the children while jobs run."""
LOOK_AGAIN = 0.05
"""Seconds after which a body that waits for its rate limit looks whether it was asked to end."""
START_AGAIN = 1.0
"""Seconds after which a child is started again that the system refused to start."""
START_PATIENCE = 30.0
"""Seconds that jobs wait for a child that is starting, before they are handed back for another worker."""
STOPPED_FOR = 3.0
"""Seconds after which a child that was stopped (SIGSTOP) is killed."""
SLACK = 1.5
"""Graces after which a child is killed that neither ends a body nor says that the body is stuck. The supervisor kills
the whole worker after two."""


class PoolLauncher(NamedTuple):
    """What all pools of a worker need to start children."""

    make_target: Callable[[str, int], ChildTarget]
    """The first message for a child of this pool, which writes its running job into this line."""
    shared_state: SharedState
    grace: float
    explained: set[str]
    """The reasons why children could not start that were logged."""


class _ChildSlot:
    """One child of the pool."""

    def __init__(self, process: PoolProcess, line: int) -> None:
        self.process = process
        self.line = line
        self.attempts: dict[tuple[bytes, int], RunningAttempt] = {}
        """The jobs that it has, in the order in which it runs them."""
        self.done = 0
        """How many jobs it has ended."""
        self.first_since = 0.0
        """Since when the first of its jobs may run."""
        self.taking_back = False
        self.stopped_since = 0.0
        self.leaving_since = 0.0
        """Since when it was seen to close."""
        self.blamed: tuple[bytes, int] | None = None
        """The job that is charged with a crash if the worker has killed the child."""
        self.retiring = False
        """It is replaced as soon as it has no job."""
        self.noted: tuple[bytes, int] | None = None
        """The job whose start was noted."""

    @property
    def takes_jobs(self) -> bool:
        return self.process.ready and not self.process.leaving and not self.retiring

    def end(self, attempt: RunningAttempt, ending: Ending, reason: str) -> None:
        """Ask the body of ``attempt`` to end."""
        self.process.send(EndJob(attempt.claim.id, attempt.claim.token, ending, reason))


class ProcessSlots:
    """The slots of one pool. All methods run on the loop of the worker."""

    def __init__(
        self, settings: PoolSettings, launcher: PoolLauncher, executor: Executor, timeouts: AttemptTimeouts,
        finish: Finish, environment: RunEnvironment,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.slots = settings.max
        self.held = 0
        self.failed = False
        """Its children died again and again before they had done a job: it takes no more."""
        self.claim_ahead = ClaimAhead(settings.max)
        self.lender: SlotLender | None = None
        self._launcher = launcher
        self._executor = executor
        self._timeouts = timeouts
        self._finish = finish
        self._environment = environment
        self._restarts = PoolRestarts()
        self._children: list[_ChildSlot] = []
        self._free_lines: list[int] = []
        self._waiting: deque[RunningAttempt] = deque()
        self._delayed: set[RunningAttempt] = set()
        """Attempts that wait for the moment that their rate limit allows."""
        self._handing_back = False
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.TimerHandle | None = None
        self._start_later: asyncio.TimerHandle | None = None

    # ---- the pool of slots --------------------------------------------------------------------

    def start(self) -> None:
        """Start the children that are kept ready."""
        for _ in range(self.settings.min - len(self._children)):
            self._start_child()

    def submit(self, attempt: RunningAttempt) -> None:
        self.held += 1
        self._waiting.append(attempt)
        self._assign()

    def take_waiting(self, before: float) -> list[RunningAttempt]:
        if before < float("inf") and any(not child.process.ready for child in self._children):
            before = min(before, boottime() - START_PATIENCE)
        every = [*self._delayed, *self._waiting]
        taken = [attempt for attempt in every if attempt.received < before]
        if before == float("inf"):
            self._handing_back = True
            for child in self._children:
                if len(child.attempts) > 1:
                    child.process.send(TakeBack())
        if taken:
            gone = set(taken)
            self._delayed -= gone
            self._waiting = deque(attempt for attempt in self._waiting if attempt not in gone)
            self.held -= len(taken)
        return taken

    def running(self) -> list[RunningAttempt]:
        return [attempt for child in self._children for attempt in child.attempts.values()]

    def add_slot(self) -> bool:
        self.slots += 1
        self._assign()
        return True

    def remove_slot(self) -> None:
        self.slots -= 1
        self._dismiss_surplus()

    def close(self) -> None:
        """Kill the children that are left."""
        self._closing = True
        for timer in (self._look, self._start_later):
            if timer is not None:
                timer.cancel()
        for child in self._children:
            child.process.kill("the worker ends")

    async def close_children(self, grace: float) -> None:
        """Let the children end: their lifespans, then their processes. Kill those that do not end within the grace."""
        self._closing = True
        for child in self._children:
            child.process.leaving = True
            if child.process.ready:
                child.process.send(Close())
            else:  # it still imports the app, and has no job
                child.process.kill("")
        await self._wait_gone(grace)
        for child in self._children:
            log.warning("child %d of pool %r does not end and is killed", child.process.pid, self.settings.name)
            child.process.kill("it did not end")
        await self._wait_gone(1.0)

    async def _wait_gone(self, seconds: float) -> None:
        end = boottime() + seconds
        while self._children and boottime() < end:
            await asyncio.sleep(0.01)
            for child in [*self._children]:
                child.process.check()

    def kill_body(self, attempt: RunningAttempt) -> None:
        """The body was asked to end and did not end within the grace: kill its child."""
        for child in self._children:
            if child.attempts.get(attempt.lease) is not attempt:
                continue
            runs = self._read_line(child)
            if runs == attempt.lease or (runs is None and next(iter(child.attempts)) == attempt.lease):
                child.process.kill(f"job {id_text(attempt.claim.id)} did not end")
            else:  # it only waits in the child: that child gives it back, without a start
                attempt.stuck = False
                self._take_back(child)

    # ---- giving jobs to children --------------------------------------------------------------

    def _assign(self) -> None:
        """Give the waiting jobs to children that are free, and start children for the others."""
        while self._waiting and (child := self._find_free_child()) is not None:
            self._send_jobs(child)
        if self._waiting and not self._closing:
            starting = sum(not child.process.ready for child in self._children if not child.process.leaving)
            live = sum(not child.process.leaving for child in self._children)
            for _ in range(min(len(self._waiting) - starting, self.slots - live)):
                self._start_child()

    def _find_free_child(self) -> _ChildSlot | None:
        free = [child for child in self._children if child.takes_jobs and len(child.attempts) < self._most(child)]
        return min(free, key=lambda child: len(child.attempts), default=None)

    def _most(self, child: _ChildSlot) -> int:
        """How many jobs a child may have: one, and some more while bodies are short. No more behind a long body."""
        if child.attempts and (child.taking_back or boottime() - child.first_since > LONG):
            return len(child.attempts)
        most = 1 + min(MOST_AHEAD, self.claim_ahead.size() // max(1, self.slots))
        if self.settings.max_jobs_per_child is not None:
            most = min(most, max(1, self.settings.max_jobs_per_child - child.done))
        return most

    def _send_jobs(self, child: _ChildSlot) -> None:
        """Send as many waiting jobs as the child may have, and no more than its part of them."""
        live = max(1, sum(each.takes_jobs for each in self._children))
        n = min(self._most(child) - len(child.attempts), max(1, -(-len(self._waiting) // live)))
        jobs: list[JobToRun] = []
        while len(jobs) < n and self._waiting:
            attempt = self._waiting.popleft()
            ack = self._executor.refuse(attempt)
            if ack is not None:
                self._end_unsent(attempt, ack)
                continue
            if attempt.limited and (pause := self._executor.seconds_until_start(attempt)) > 0:
                self._delay(attempt, pause)
                continue
            if not child.attempts:
                child.first_since = boottime()
            self._executor.read_own_options(attempt)
            attempt.begun, attempt.started, attempt.child = True, boottime(), child
            child.attempts[attempt.lease] = attempt
            jobs.append(JobToRun(attempt.claim, attempt.inputs))
        if jobs:
            env = self._environment
            child.process.send(RunJobs(env.worker, env.store_ahead, env.store_replied, tuple(jobs)))
            self._look_soon()

    def _delay(self, attempt: RunningAttempt, pause: float) -> None:
        self._delayed.add(attempt)
        self._loop.call_later(min(pause, LOOK_AGAIN), self._end_delay, attempt)

    def _end_delay(self, attempt: RunningAttempt) -> None:
        if attempt in self._delayed:
            self._delayed.discard(attempt)
            self._waiting.appendleft(attempt)
            self._assign()

    def _end_unsent(self, attempt: RunningAttempt, ack: Ack) -> None:
        attempt.finished = True
        self.held -= 1
        self._finish(attempt, ack)

    # ---- messages of children -----------------------------------------------------------------

    def _on_message(self, process: PoolProcess, message: FromChild) -> None:
        child = self._find(process)
        if child is None:
            return
        match message:
            case JobEnded():
                self._on_ended(child, message)
            case JobReport():
                self._on_report(child, message)
            case Ready(import_us=took):
                process.ready = True
                log.debug(
                    "child %d of pool %r has imported the app in %d ms", process.pid, self.settings.name, took // 1000
                )
                self._assign()
            case ImportFailed(text=text):
                self._on_import_failed(process, text)
            case JobsGivenBack(jobs=jobs):
                self._on_given_back(child, jobs)
            case BodyStuck():
                self._on_stuck(child, message)
            case BodyWaits():
                self._on_waits(child, message)

    def _on_ended(self, child: _ChildSlot, ended: JobEnded) -> None:
        attempt = child.attempts.pop(ended.ack.lease, None)
        if attempt is None:
            return
        child.first_since = boottime()
        child.done += 1
        self._restarts.record_work()
        attempt.begun, attempt.started = ended.begun, ended.started
        attempt.actual_cost = ended.cost
        attempt.finished = True
        attempt.child = None
        self.held -= 1
        if ended.begun:
            self.claim_ahead.record_run(ended.ack.run_us)
        if ended.begun:
            self._note_started(child, attempt)
        if self.lender is not None:
            self.lender.take_back(attempt)
        self._finish(attempt, ended.ack)
        if not child.retiring and self._must_replace(child):
            child.retiring = True
            if child.attempts:
                self._take_back(child)
        self._on_idle(child)
        self._assign()

    def _on_idle(self, child: _ChildSlot) -> None:
        """Replace the child if it has done enough and has no job; let it end if it is one too many."""
        if child.attempts:
            return
        child.taking_back = False
        if child.retiring and not child.process.leaving:
            self._replace(child)
        else:
            self._dismiss_surplus()

    def _note_started(self, child: _ChildSlot, attempt: RunningAttempt) -> None:
        """Call the hooks for the start of a body, once. A long body is noticed by the look at its child."""
        if child.noted != attempt.lease:
            child.noted = attempt.lease
            self._executor.note_started(attempt)

    def _on_report(self, child: _ChildSlot, report: JobReport) -> None:
        attempt = child.attempts.get((report.id, report.token))
        if attempt is None:
            return
        if report.progress is not None:
            attempt.progress = report.progress
        if report.logs:
            attempt.logs = attempt.logs if attempt.logs is not None else deque(maxlen=1_000)
            attempt.logs.extend(report.logs)
        if report.items:
            attempt.stream = attempt.stream if attempt.stream is not None else Stream()
            attempt.stream.waiting.extend(report.items)
        attempt.environment.reports.add(attempt, soon=bool(report.items))

    def _on_given_back(self, child: _ChildSlot, jobs: tuple[tuple[bytes, int], ...]) -> None:
        child.taking_back = False
        for lease in reversed(jobs):
            attempt = child.attempts.pop(lease, None)
            if attempt is not None:
                self._wait_again(attempt)
        self._on_idle(child)
        self._assign()

    def _wait_again(self, attempt: RunningAttempt) -> None:
        """The attempt was sent to a child and has not begun there."""
        attempt.begun, attempt.started, attempt.child = False, 0.0, None
        if self._handing_back or self._closing or attempt.ending:
            self._end_unsent(attempt, self._executor.refuse(attempt) or Ack.returned(attempt.lease))
        else:
            self._waiting.appendleft(attempt)

    def _on_stuck(self, child: _ChildSlot, stuck: BodyStuck) -> None:
        attempt = child.attempts.get((stuck.id, stuck.token))
        if attempt is not None:
            attempt.ending = max(attempt.ending, Ending(stuck.ending))
            attempt.ending_reason = attempt.ending_reason or stuck.place
            child.process.kill(f"job {id_text(stuck.id)} did not end")

    def _on_waits(self, child: _ChildSlot, wait: BodyWaits) -> None:
        attempt = child.attempts.get((wait.id, wait.token))
        if attempt is not None and self.lender is not None:
            (self.lender.lend if wait.begins else self.lender.take_back)(attempt)

    def _on_import_failed(self, process: PoolProcess, text: str) -> None:
        process.leaving = True
        if text not in self._launcher.explained:
            self._launcher.explained.add(text)
            log.error("a child of pool %r cannot start:\n%s", self.settings.name, text.rstrip())

    # ---- the end of a child -------------------------------------------------------------------

    def _on_exit(self, process: PoolProcess) -> None:
        child = self._find(process)
        if child is None:
            return
        self._children.remove(child)
        guilty = self._read_line(child)
        how = describe_exit(process.exit_code or 0)
        log.log(
            logging.DEBUG if process.leaving and not process.killed_for else logging.WARNING,
            "child %d of pool %r %s%s", process.pid, self.settings.name, how,
            f": {process.killed_for}" if process.killed_for else "",
        )  # fmt: skip
        left = list(child.attempts.values())
        child.attempts.clear()
        for attempt in reversed(left):
            if attempt.lease == guilty or (process.killed_for and attempt.ending >= Ending.HARD):
                self._end_with_child(attempt, child, how)
            else:
                self._wait_again(attempt)
        self._launcher.shared_state.end(child.line)
        self._free_lines.append(child.line)
        if self._closing:
            return
        if not process.leaving or not process.ready:
            self._restarts.record_death(served=child.done > 0 or guilty is not None)
        self._refill()

    def _read_line(self, child: _ChildSlot) -> tuple[bytes, int] | None:
        """The job that the child ran when it died."""
        body = self._launcher.shared_state.read(child.line)
        return None if body is None else (body.job, body.token)

    def _end_with_child(self, attempt: RunningAttempt, child: _ChildSlot, how: str) -> None:
        """The body ended with its child: as it was asked to, by a crash, or because of the job before it."""
        process = child.process
        if self.lender is not None:
            self.lender.take_back(attempt)
        run_us = attempt.run_us(boottime())
        attempt.finished, attempt.child = True, None
        self.held -= 1
        match attempt.ending:
            case Ending.HARD:
                ack = classify.ack_hard_timeout(attempt, attempt.retries, run_us)
            case Ending.CANCEL:
                ack = classify.ack_cancelled(attempt, run_us)
            case Ending.STOP | Ending.FENCE | Ending.GONE:
                ack = classify.ack_handed_back(attempt, run_us)
            case _ if process.killed_for and attempt.lease != child.blamed:
                ack = classify.ack_handed_back(attempt, run_us)
            case _:
                ack = classify.ack_crashed(attempt, ChildDied(how, process.killed_for), run_us)
        self._finish(attempt, ack)

    # ---- children -----------------------------------------------------------------------------

    def _start_child(self) -> None:
        if self._restarts.has_failed or self._closing:
            return
        pause = self._restarts.pause(boottime())
        if pause > 0:
            if self._start_later is None:
                self._start_later = self._loop.call_later(pause, self._start_now)
            return
        line = self._free_lines.pop() if self._free_lines else self._executor.bulk.extra_lines.take()
        if line < 0:
            log.error("pool %r: this worker has no line left for another child", self.settings.name)
            return
        launcher = self._launcher
        try:
            process = PoolProcess(
                launcher.make_target(self.settings.name, line), launcher.shared_state.fd,
                on_message=self._on_message, on_exit=self._on_exit,
            )  # fmt: skip
        except OSError as error:  # no process or descriptor is left for this user
            log.error("a child of pool %r cannot be started: %s", self.settings.name, error)
            self._free_lines.append(line)
            if self._start_later is None and not self._closing:
                self._start_later = self._loop.call_later(START_AGAIN, self._start_now)
            return
        self._children.append(_ChildSlot(process, line))
        self._look_soon()

    def _start_now(self) -> None:
        self._start_later = None
        self._refill()

    def _refill(self) -> None:
        """Start what is missing of the children that are kept ready, and of those that the waiting jobs need."""
        if not self._closing:
            live = sum(not child.process.leaving for child in self._children)
            for _ in range(min(self.settings.min, self.slots) - live):
                self._start_child()
            self._assign()
        if self._restarts.has_failed and not self.failed:
            self._fail()

    def _fail(self) -> None:
        """Children die again and again before they have done anything: hand the waiting jobs back, claim no more."""
        log.critical(
            "pool %r has failed: its children ended %d times in a row without having done a job; restart the worker "
            "after the cause is repaired", self.settings.name, self._restarts.deaths,
        )  # fmt: skip
        self.failed = True
        for attempt in self.take_waiting(float("inf")):
            attempt.finished = True
            self._finish(attempt, Ack.returned(attempt.lease))

    def _must_replace(self, child: _ChildSlot) -> bool:
        settings = self.settings
        if settings.max_jobs_per_child is not None and child.done >= settings.max_jobs_per_child:
            return True
        if settings.max_age is not None and boottime() - child.process.started > settings.max_age / 1e6:
            return True
        most = settings.max_memory_per_child
        return most is not None and process_tree.read_rss(child.process.pid) > most

    def _replace(self, child: _ChildSlot) -> None:
        """The child has done its part: start another one, and let this one end."""
        child.process.leaving = True
        child.process.send(Close())
        self._refill()

    def _dismiss_surplus(self) -> None:
        live = [child for child in self._children if not child.process.leaving]
        for child in live:
            if len(live) <= self.slots:
                return
            if not child.attempts and child.process.ready:
                live = [each for each in live if each is not child]
                child.process.leaving = True
                child.process.send(Close())

    def _find(self, process: PoolProcess) -> _ChildSlot | None:
        return next((child for child in self._children if child.process is process), None)

    # ---- looks --------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._look is None and not self._closing:
            self._look = self._loop.call_later(LOOK_EVERY, self._look_at_children)

    def _look_at_children(self) -> None:
        """While children run jobs or start: notice those that ended, stopped, or run a body past its time."""
        self._look = None
        now = boottime()
        for child in [*self._children]:
            child.process.check()
            self._check_leaving(child, now)
            if child.attempts and not child.process.killed_for:
                self._check_stopped(child, now)
                self._check_deadline(child, now)
                self._check_long(child, now)
        if any(child.attempts or child.process.leaving or not child.process.ready for child in self._children):
            self._look_soon()

    def _check_leaving(self, child: _ChildSlot, now: float) -> None:
        """A child whose lifespan does not end must not stay."""
        if not child.process.leaving or child.process.killed_for:
            return
        child.leaving_since = child.leaving_since or now
        if now - child.leaving_since > 2 * self._launcher.grace:
            child.process.kill("it did not end")

    def _check_stopped(self, child: _ChildSlot, now: float) -> None:
        stat = process_tree.read_stat(child.process.pid)
        if stat is None or not stat.stopped:
            child.stopped_since = 0.0
        elif not child.stopped_since:
            child.stopped_since = now
        elif now - child.stopped_since > STOPPED_FOR:
            child.blamed = self._read_line(child)
            child.process.kill(f"it was stopped for {STOPPED_FOR:g} s")

    def _check_deadline(self, child: _ChildSlot, now: float) -> None:
        """A body that holds the GIL keeps its child from noticing that its time is over."""
        body = self._launcher.shared_state.read(child.line)
        if body is None or (attempt := child.attempts.get((body.job, body.token))) is None:
            return
        self._note_started(child, attempt)
        limit = self._launcher.grace * SLACK
        if body.deadline and now > body.deadline + limit and attempt.ending < Ending.HARD:
            attempt.ending, attempt.started = Ending.HARD, body.started or attempt.started
            child.process.kill(f"job {id_text(body.job)} ran past its time limit")

    def _check_long(self, child: _ChildSlot, now: float) -> None:
        """Take back the jobs behind a long body: at once if another child could run them, else after a second, for
        another worker."""
        if len(child.attempts) < 2 or child.taking_back or now - child.first_since < LONG:
            return
        free = any(each.takes_jobs and not each.attempts for each in self._children)
        if now - child.first_since > TAKE_BACK_AFTER or (
            not self._waiting and (free or len(self._children) < self.slots)
        ):
            self._take_back(child)

    def _take_back(self, child: _ChildSlot) -> None:
        child.taking_back = True
        child.process.send(TakeBack())
