"""The messages between a worker and its pool children, and the settings of a pool. Durations in microseconds."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import LogLine
from mainspring.stores.connect import StoreAddress
from mainspring.worker.config import LogSettings
from mainspring.worker.records import Claim


class ChildTarget(msgspec.Struct, frozen=True, kw_only=True):
    """How a child imports the app: the first message that it gets."""

    target: str
    """``module:name`` or ``file.py:name``."""
    path: tuple[str, ...]
    """``sys.path`` of the worker."""
    address: StoreAddress
    """The store of the worker."""
    logs: LogSettings
    pool: str
    grace: int
    line: int
    """The line of the shared state in which the child writes the job that it runs."""


class JobToRun(msgspec.Struct, frozen=True, array_like=True):
    """One claimed job."""

    claim: Claim
    inputs: dict[str, bytes] | None = None
    """The arguments that are results of other jobs, as JSON."""


class RunJobs(msgspec.Struct, frozen=True, tag="run"):
    """Run these jobs, one after the other."""

    worker: str
    """The id of the worker in the store."""
    store_ahead: int
    store_replied: int
    """The clock of the store: see ``RunEnvironment``."""
    jobs: tuple[JobToRun, ...]


class EndJob(msgspec.Struct, frozen=True, tag="end"):
    """End the body of this job, or do not start it. ``ending`` is an ``Ending``."""

    id: bytes
    token: int
    ending: int
    reason: str = ""


class TakeBack(msgspec.Struct, frozen=True, tag="take_back"):
    """Give back the jobs that have not begun: another child is free, and the job before them takes long."""


class Close(msgspec.Struct, frozen=True, tag="close"):
    """No further job comes: end the lifespans and the process."""


ToChild = RunJobs | EndJob | TakeBack | Close


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The app is imported and its lifespans have started."""

    import_us: int


class ImportFailed(msgspec.Struct, frozen=True, tag="import_failed"):
    """The child could not import the app or start a lifespan, and ends. ``text`` is for people."""

    text: str


class JobReport(msgspec.Struct, frozen=True, tag="report"):
    """What a running body has reported since the last message."""

    id: bytes
    token: int
    progress: bytes | None
    logs: tuple[LogLine, ...]
    items: tuple[tuple[int, bytes], ...]


class JobEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The attempt has ended, or did not start."""

    ack: Ack
    begun: bool
    started: float
    """Boottime seconds."""
    cost: dict[str, int] | None = None
    """The real cost by limit, if the handler has given it."""


class JobsGivenBack(msgspec.Struct, frozen=True, tag="given_back"):
    """These jobs have not begun, and will not begin in this child."""

    jobs: tuple[tuple[bytes, int], ...]


class BodyStuck(msgspec.Struct, frozen=True, tag="stuck"):
    """The body was asked to end and did not end within the grace."""

    id: bytes
    token: int
    ending: int
    place: str


class BodyWaits(msgspec.Struct, frozen=True, tag="waits"):
    """The body begins or ends to wait for another job: it lends its slot meanwhile."""

    id: bytes
    token: int
    begins: bool


FromChild = Ready | ImportFailed | JobReport | JobEnded | JobsGivenBack | BodyStuck | BodyWaits


def encode(message: Any) -> bytes:
    return _encode(message)


_encode = msgspec.msgpack.Encoder().encode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode
decode_target = msgspec.msgpack.Decoder(ChildTarget).decode
