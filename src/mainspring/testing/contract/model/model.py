"""The contract once more, as plain Python over a dict: slow, small, and written from the docstrings alone.

It shares no code with any store; it borrows only the words (states, outcomes, records). Where the contract
leaves something open (which of two jobs that became ready in one step stands first) the model is told by the
caller what the store chose and checks that the choice was allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mainspring.errors import KeyTaken, QueueDraining, StoreConflict
from mainspring.jobs.outcomes import CRASH_DELAYS, Ack, Outcome
from mainspring.jobs.records import Enqueued, NewJob
from mainspring.queues.records import QueueMode
from mainspring.states import FINAL, Action, Reason, State
from mainspring.worker.records import Turn, Want

from .model_records import Ended, ModelJob, ModelWorker, Planned, Reply, Taken

HOUR = 3_600_000_000


class Model:
    """Jobs and workers, and what each call of the contract does to them."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[bytes, ModelJob] = {}
        self.workers: dict[str, ModelWorker] = {}
        self.modes: dict[str, QueueMode] = {}
        self.sizes: dict[str, int] = {}
        """Of limits: they are declared before any job names them."""
        self.keys: dict[bytes, tuple[bytes, int]] = {}
        """Who took each unique key last, and to when its window goes."""
        self.fresh: list[ModelJob] = []
        """Jobs that became ready in the step under way; the store's order among them is still to be told."""

    # ---- steps --------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """A call begins: the store's time is ``now``."""
        self.now = now
        self.fresh = []

    def _ready(self, job: ModelJob) -> None:
        job.state, job.due = State.READY, None
        self.fresh.append(job)

    def _after(self, job: ModelJob, due: int, state: State) -> None:
        job.state, job.due = state, due

    # ---- enqueue ------------------------------------------------------------------------------

    def plan(self, jobs: Sequence[NewJob]) -> Planned:
        """What this batch would do; nothing is done yet."""
        plan = Planned()
        taken: dict[bytes, bytes] = {}
        for job in jobs:
            holder = None
            if job.unique is not None and job.id not in self.jobs:
                if job.unique.hash not in taken:
                    plan.late += self._late_holder(job.unique.hash)
                holder = taken.get(job.unique.hash) or self.holder(job.unique.hash)
                if holder is not None and job.unique.conflict == "error":
                    plan.refusals.add(KeyTaken)
                if holder is not None and job.unique.conflict == "replace":
                    plan.losers.append(holder)
                    holder = None
            if job.id in self.jobs or holder is not None:
                plan.replies.append(Enqueued(holder or job.id, False))
                continue
            if job.unique is not None:
                taken[job.unique.hash] = job.id
            if self.modes.get(job.queue) is QueueMode.DRAINING:
                plan.refusals.add(QueueDraining)
            plan.replies.append(Enqueued(job.id, True))
            plan.new.append(job)
        here = self.jobs.keys() | {job.id for job in plan.new}
        if any(edge.parent not in here for job in plan.new for edge in job.after):
            plan.refusals.add(StoreConflict)
        return plan

    def enqueue(self, plan: Planned) -> None:
        """Do what was planned."""
        assert not plan.refusals
        self._end_late(plan.late)
        for job in plan.new:
            self.jobs[job.id] = self._made(job)
            if job.unique is not None:
                window = job.unique.window
                self.keys[job.unique.hash] = job.id, self.now + window if window else 0  # no window ends at no time
        for job in plan.new:
            self._settle(self.jobs[job.id])
        for id in plan.losers:
            if self.jobs[id].waiting:
                self._finish(self.jobs[id], State.CANCELLED, Reason.SUPERSEDED)

    def holder(self, key: bytes) -> bytes | None:
        """The job that holds a unique key: it lives and has not expired waiting, or its window is running."""
        id, until = self.keys.get(key, (b"", 0))
        job = self.jobs.get(id)
        over = job is None or job.state in FINAL or (job.waiting and self._expired(job))
        return None if job is None or (over and until <= self.now) else id

    def _late_holder(self, key: bytes) -> list[bytes]:
        """The last holder, if it has expired and no call has ended it yet."""
        id, _ = self.keys.get(key, (b"", 0))
        job = self.jobs.get(id)
        return [id] if job is not None and job.waiting and self._expired(job) else []

    def _end_late(self, ids: Sequence[bytes]) -> None:
        for id in ids:
            if self.jobs[id].waiting:
                self._finish(self.jobs[id], State.CANCELLED, Reason.EXPIRED)

    def _made(self, new: NewJob) -> ModelJob:
        due = new.run_at if new.run_at is not None else self.now + new.delay
        expires = None if new.expires_in is None else self.now + new.expires_in
        return ModelJob(new, State.BLOCKED, due if due > self.now else None, expires)

    def _settle(self, job: ModelJob) -> None:
        """Resolve the parents that are final already."""
        if job.state is not State.BLOCKED:
            return  # a cancelled parent of the same batch has ended it
        for edge in job.new.after:
            parent = self.jobs[edge.parent]
            if parent.state not in FINAL:
                job.waits_for[edge.parent] = edge.policy
            elif edge.policy == "fail" and parent.state is not State.SUCCEEDED:
                self._finish(job, State.CANCELLED, Reason.PARENT)
                return
        if not job.waits_for:
            self._unblock(job)

    def _unblock(self, job: ModelJob) -> None:
        if job.due is not None and job.due > self.now:
            job.state = State.SCHEDULED
        else:
            self._ready(job)

    # ---- ends ---------------------------------------------------------------------------------

    def _finish(self, job: ModelJob, state: State, reason: Reason | None) -> None:
        """Every path into a final state: follow-ups are made, dependents are resolved by their policy."""
        job.state, job.reason, job.ordered, job.due = state, reason, False, None
        job.waits_for = {}
        for follow in job.new.follows:
            id = follow.job.id[:14] + (job.epoch + 1).to_bytes(2)
            if follow.on is state and id not in self.jobs:
                made = self.jobs[id] = self._made(msgspec.structs.replace(follow.job, id=id))
                self._unblock(made)
        self._resolve(job.new.id, state is State.SUCCEEDED)

    def _resolve(self, parent: bytes, succeeded: bool) -> None:
        for child in [each for each in self.jobs.values() if parent in each.waits_for]:
            policy = child.waits_for.pop(parent, None)
            if policy is None or child.state is not State.BLOCKED:
                continue
            if policy == "fail" and not succeeded:
                self._finish(child, State.CANCELLED, Reason.PARENT)
            elif not child.waits_for:
                self._unblock(child)

    def _leave(self, job: ModelJob, outcome: Outcome) -> None:
        """The running attempt is over."""
        assert job.worker is not None
        job.attempts.append(Ended(job.token, job.attempt, job.worker, outcome))

    # ---- turns --------------------------------------------------------------------------------

    def acks(self, turn: Turn) -> Reply:
        """The first half of a turn: the worker, and the result of each ack."""
        worker = self.workers.get(turn.worker)
        if worker is None or worker.lost:
            return Reply(lost=True)
        if turn.number < worker.turn:
            return Reply(conflict=True)
        reply = Reply()
        for ack in turn.acks:
            self._take(turn.worker, ack, reply)
        return reply

    def _take(self, worker: str, ack: Ack, reply: Reply) -> None:
        lease, job = (ack.id, ack.token), self.jobs.get(ack.id)
        if job is not None and self._owns(job, worker, ack.token):
            self._apply(job, ack)
        elif job is None or job.acked.get(ack.token) != (worker, ack.outcome):
            reply.stale.add(lease)
        elif job.token == ack.token:
            reply.already.add(lease)
        else:
            reply.unsure.add(lease)

    @staticmethod
    def _owns(job: ModelJob, worker: str, token: int) -> bool:
        return job.state is State.RUNNING and job.token == token and job.worker == worker

    def _apply(self, job: ModelJob, ack: Ack) -> None:
        assert job.worker is not None
        job.acked[ack.token] = job.worker, ack.outcome
        if ack.to is not State.SUCCEEDED or job.ordered:
            self._leave(job, ack.outcome)
        if ack.refund:
            job.attempt -= 1
        if not ack.unstarted:
            job.expires = None
        if ack.outcome is Outcome.CRASHED:
            self._give_back(job, True, True, ack)
        elif job.ordered:
            self._finish(job, State.CANCELLED, Reason.BY_USER)
        elif ack.to in FINAL:
            self._finish(job, ack.to, ack.reason)
        elif ack.buckets:
            named = {bucket.limit for bucket in job.new.buckets}
            more = [bucket for bucket in ack.buckets if bucket.limit not in named]
            job.new = msgspec.structs.replace(job.new, buckets=(*job.new.buckets, *more))
            job.state, job.due = State.READY, None  # its seq stays
        elif ack.to is State.READY:
            self._ready(job)
        else:
            self._after(job, ack.due if ack.due is not None else self.now + ack.delay, ack.to)

    def rest(self, turn: Turn, reply: Reply) -> None:
        """The second half: what the worker holds, what it gets, what it must do."""
        worker = self.workers[turn.worker]
        acked = {(ack.id, ack.token) for ack in turn.acks}
        held = {(job.new.id, job.token) for job in self._held(turn.worker)}
        reply.gone = {lease for lease in turn.holds or () if lease not in held | acked}
        unheard = min(turn.seen, turn.number - 1)
        reply.claims = [job for job in self._held(turn.worker) if job.turn > unheard]
        if turn.number > worker.turn:
            reply.claims += self._hand_out(turn)
            worker.turn = turn.number
        reply.orders = {(job.new.id, job.token) for job in self._held(turn.worker) if job.ordered}

    def _held(self, worker: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state is State.RUNNING and job.worker == worker]

    def _hand_out(self, turn: Turn) -> list[ModelJob]:
        claims: list[ModelJob] = []
        suspects = turn.suspects
        for want in turn.wants:
            for job in self._picked(want, suspects):
                suspects -= job.suspect
                claims.append(job)
                job.state, job.worker, job.turn = State.RUNNING, turn.worker, turn.number
                job.token = max(job.token + 1, self.now)
                job.attempt += 1
        return claims

    def _picked(self, want: Want, suspects: int) -> Iterator[ModelJob]:
        """One job after the other, so that each choice sees the capacity that the choice before used."""
        left = want.n
        while left > 0:
            line = [job for job in self.jobs.values() if self._may_run(job, want)]
            suspected = [job for job in line if job.suspect] if suspects > 0 else []
            plain = [job for job in line if not job.suspect]
            if suspected:
                suspects -= 1
                yield min(suspected, key=_turn_of)
            elif plain:
                yield min(plain, key=_turn_of)
            else:
                return
            left -= 1

    def _may_run(self, job: ModelJob, want: Want) -> bool:
        return (
            job.state is State.READY
            and job.lane in want.lanes
            and self.modes.get(job.new.queue) is not QueueMode.PAUSED
            and not self._expired(job)
            and all(self.used(bucket.name) < self.sizes[bucket.limit] for bucket in job.new.buckets)
        )

    def used(self, bucket: str) -> int:
        """How many running jobs name the bucket."""
        running = (job for job in self.jobs.values() if job.state is State.RUNNING)
        return sum(bucket in {each.name for each in job.new.buckets} for job in running)

    # ---- time ---------------------------------------------------------------------------------

    def _expired(self, job: ModelJob) -> bool:
        return job.expires is not None and job.expires <= self.now

    def expire(self) -> list[bytes]:
        """Waiting jobs past their time end; which they were. One may end as the child of another."""
        late = [job for job in self.jobs.values() if job.waiting and self._expired(job)]
        for job in late:
            if job.waiting:
                self._finish(job, State.CANCELLED, Reason.EXPIRED)
        return [job.new.id for job in late]

    def promote(self) -> list[ModelJob]:
        """Due jobs become ready; in the order in which they were due."""
        due = [job for job in self.jobs.values() if job.state in (State.SCHEDULED, State.RETRYING)]
        due = sorted((job for job in due if (job.due or 0) <= self.now), key=lambda job: job.due or 0)
        for job in due:
            self._ready(job)
        return due

    def next_due(self) -> int | None:
        """The earliest moment at which a promotion or an expiry is due."""
        later = [job.due for job in self.jobs.values() if job.state in (State.SCHEDULED, State.RETRYING)]
        ending = [job.expires for job in self.jobs.values() if job.waiting]
        return min((moment for moment in later + ending if moment is not None), default=None)

    # ---- fleet --------------------------------------------------------------------------------

    def beat(self, worker: str, register: bool) -> ModelWorker | None:
        """The row that was counted up, or None: not alive."""
        found = self.workers.get(worker)
        if found is None and register:
            found = self.workers[worker] = ModelWorker(0)
        if found is None or found.lost:
            return None
        found.number += 1
        return found

    def rescue(self, worker: str, number: int, cause: Outcome) -> Taken:
        found = self.workers.get(worker)
        if found is None or found.lost or found.number != number:
            return Taken()
        found.lost = True
        return self._take_back(worker, cause)

    def retire(self, worker: str, cause: Outcome, acks: Iterable[Ack]) -> Taken:
        if worker not in self.workers:
            return Taken()
        for ack in acks:
            self._take(worker, ack, Reply())
        taken = self._take_back(worker, cause)
        del self.workers[worker]
        return taken

    def _take_back(self, worker: str, cause: Outcome) -> Taken:
        held = self._held(worker)
        suspects = [job for job in held if job.suspect]
        crashed = [job for job in held if job.crashes and not job.suspect]
        charged = (crashed or suspects or held) if cause is Outcome.CRASHED else []
        taken = Taken(True)
        for job in held:
            self._leave(job, cause)
            job.attempt -= 1
            self._give_back(job, job in charged, job.suspect or len(held) == 1)
        for job in held:
            taken.moved.setdefault(job.state, set()).add(job.new.id)
        return taken

    def _give_back(self, job: ModelJob, charged: bool, sure: bool, ack: Ack | None = None) -> None:
        """``ack``: the worker of the job lives, and reports that the job crashed."""
        job.crashes += charged
        job.expires = None
        delays = CRASH_DELAYS if ack is None else ack.delays
        delay = delays[min(job.crashes, len(delays)) - 1] if charged and delays else 0
        if job.ordered:
            self._finish(job, State.CANCELLED, Reason.BY_USER)
        elif job.new.early or (ack and ack.to is State.DEAD) or (charged and sure and job.crashes >= job.new.crashes):
            self._finish(job, State.DEAD, Reason.CRASHED if ack is None else ack.reason)
        elif delay:
            self._after(job, self.now + delay, State.RETRYING)
        else:
            self._ready(job)

    # ---- by hand ------------------------------------------------------------------------------

    def set_mode(self, queue: str, mode: QueueMode) -> None:
        self.modes[queue] = mode

    def act(self, action: Action, id: bytes, priority: int = 0) -> bool | bytes | None:
        """Done, refused, the id of the other job that holds the key, or None if there is no such job."""
        job = self.jobs.get(id)
        if job is None:
            return None
        match action:
            case Action.CANCEL:
                return self._cancel(job)
            case Action.RETRY:
                return self._retry(job)
            case Action.RUN_NOW:
                return self._run_now(job)
            case Action.REPRIORITISE:
                return self._reprioritise(job, priority)
            case _:
                return self._delete(job)

    def _cancel(self, job: ModelJob) -> bool:
        if job.state is State.RUNNING:
            job.ordered = True
        elif job.waiting:
            self._finish(job, State.CANCELLED, Reason.BY_USER)
        else:
            return False
        return True

    def _retry(self, job: ModelJob) -> bool | bytes:
        if job.state not in FINAL:
            return False
        if job.new.unique is not None:
            self._end_late(self._late_holder(job.new.unique.hash))
            holder = self.holder(job.new.unique.hash)
            if holder is None:
                self.keys[job.new.unique.hash] = job.new.id, 0
            elif holder != job.new.id:
                return holder
        job.attempt = job.crashes = 0
        job.epoch += 1
        job.reason = None
        job.expires = None
        self._ready(job)
        return True

    def _run_now(self, job: ModelJob) -> bool:
        if job.state not in (State.SCHEDULED, State.RETRYING):
            return False
        self._ready(job)
        return True

    def _reprioritise(self, job: ModelJob, priority: int) -> bool:
        if not job.waiting:
            return False
        job.new = msgspec.structs.replace(job.new, priority=priority)
        return True

    def _delete(self, job: ModelJob) -> bool:
        if job.state is State.RUNNING:
            return False
        del self.jobs[job.new.id]
        self._resolve(job.new.id, succeeded=False)
        return True


def _turn_of(job: ModelJob) -> tuple[int, int]:
    """An hour of age counts as one point of priority."""
    return job.seq - job.new.priority * HOUR, job.seq
