"""The records of the model of the contract."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import Enqueued, NewJob
from mainspring.states import WAITING, Reason, State
from mainspring.worker.records import Claim

Lease = tuple[bytes, int]


@dataclass
class Ended:
    """An attempt that is over."""

    token: int
    attempt: int
    worker: str
    outcome: Outcome


@dataclass
class ModelJob:
    new: NewJob
    state: State
    due: int | None
    expires: int | None
    waits_for: dict[bytes, str] = field(default_factory=dict)
    reason: Reason | None = None
    attempt: int = 0
    epoch: int = 0
    crashes: int = 0
    token: int = 0
    worker: str | None = None
    turn: int = 0
    ordered: bool = False
    seq: int = 0
    attempts: list[Ended] = field(default_factory=list)
    acked: dict[int, tuple[str, Outcome]] = field(default_factory=dict)
    """Tokens whose ack was applied, with the owner and what it said."""

    @property
    def lane(self) -> str:
        return f"{self.new.queue}/{self.new.kind}"

    @property
    def suspect(self) -> bool:
        """One more crash would be the last."""
        return self.crashes > 0 and self.crashes + 1 >= self.new.crashes

    @property
    def waiting(self) -> bool:
        return self.state in WAITING


@dataclass
class Planned:
    """What a batch would do: the replies, the new jobs, the holders that lose their key or are late, and why not."""

    replies: list[Enqueued] = field(default_factory=list)
    new: list[NewJob] = field(default_factory=list)
    losers: list[bytes] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)
    refusals: set[type[Exception]] = field(default_factory=set)


@dataclass
class ModelWorker:
    number: int
    turn: int = 0
    lost: bool = False


@dataclass
class Reply:
    """The expected reply of a turn. Acks in ``unsure`` may be already or stale, because the job has moved on since."""

    lost: bool = False
    conflict: bool = False
    claims: list[ModelJob] = field(default_factory=list)
    already: set[Lease] = field(default_factory=set)
    stale: set[Lease] = field(default_factory=set)
    unsure: set[Lease] = field(default_factory=set)
    orders: set[Lease] = field(default_factory=set)
    gone: set[Lease] = field(default_factory=set)


@dataclass
class Taken:
    """What a rescue or a retirement must have moved."""

    taken: bool = False
    moved: dict[State, set[bytes]] = field(default_factory=dict)


def agrees(job: ModelJob, claim: Claim) -> bool:
    """Whether a claim has the values of this job."""
    return (claim.id, claim.token, claim.attempt, claim.crashes, claim.turn, claim.record) == (
        job.new.id, job.token, job.attempt, job.crashes, job.turn, job.new.record,
    )  # fmt: skip
