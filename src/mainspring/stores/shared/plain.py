"""Which jobs fit a short statement of an engine: jobs that use only the fields that the statement carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from msgspec.structs import fields

from mainspring.jobs.records import NewJob


def only(*carried: str) -> Callable[[NewJob], bool]:
    """A check whether a job has the default of every field that is not among ``carried``.

    The other fields are read from :class:`NewJob`. So a field that is added there is never dropped: a job that uses it
    does not fit any short statement until the engine carries the field.

    >>> fits = only("id", "task", "queue")
    >>> fits(NewJob(id=b"", task="a", queue="b")), fits(NewJob(id=b"", task="a", queue="b", priority=1))
    (True, False)
    """
    others = [field for field in fields(NewJob) if field.name not in carried]
    read = attrgetter(*[field.name for field in others])
    defaults = tuple(field.default for field in others)
    return lambda job: bool(read(job) == defaults)


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs differ only in their ids and records."""
    rest = list(map(_shared_fields, jobs))
    return rest.count(rest[0]) == len(rest)


_shared_fields = attrgetter(*[field.name for field in fields(NewJob) if field.name not in ("id", "record")])
