"""Short statements of the engines: a job fits one only if it has nothing but the fields that the statement carries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mainspring.jobs.records import NewJob
from mainspring.stores.shared.plain import are_alike, only

CHECKS = {
    "sqlite": ("mainspring.stores.sqlite.jobs.enqueue", "_fits_bulk"),
    "sqlite, alike": ("mainspring.stores.sqlite.jobs.enqueue", "_fits_alike"),
    "postgres, short": ("mainspring.stores.postgres.jobs.enqueue.statement", "_fits_short"),
    "postgres": ("mainspring.stores.postgres.jobs.enqueue.statement", "_fits_plain"),
    "redis": ("mainspring.stores.redis.jobs.enqueue", "_fits_plain"),
}
CARRIED = {
    "sqlite": {"delay", "run_at", "expires_in", "buckets", "fair", "marks", "keep", "follows"},
    "sqlite, alike": {"delay", "run_at", "expires_in"},
    "postgres, short": set(),
    "postgres": {"delay", "run_at", "expires_in"},
    "redis": set(),
}
"""Beside the fields that every short statement carries."""
ALWAYS = {"id", "task", "queue", "kind", "priority", "crashes", "early", "record"}


def check_of(engine: str) -> Callable[[NewJob], bool]:
    module, name = CHECKS[engine]
    found: Callable[[NewJob], bool] = getattr(importlib.import_module(module), name)
    return found


@pytest.mark.parametrize("engine", CHECKS)
def test_a_field_fits_only_if_the_statement_carries_it(engine: str) -> None:
    fits = check_of(engine)
    plain = NewJob(id=b"i", task="t", queue="q")
    assert fits(plain)
    for field in msgspec.structs.fields(NewJob):
        changed: Any = msgspec.structs.replace(plain)
        msgspec.structs.force_setattr(changed, field.name, "something else")
        assert fits(changed) == (field.name in ALWAYS | CARRIED[engine]), field.name


def test_a_field_that_is_not_named_must_have_its_default() -> None:
    fits = only("id", "task", "queue")
    assert fits(NewJob(id=b"", task="t", queue="q"))
    assert not fits(NewJob(id=b"", task="t", queue="q", keep=0))


def test_alike_jobs_differ_in_id_and_record_only() -> None:
    job = NewJob(id=b"1", task="t", queue="q", record=b"1")
    for field in msgspec.structs.fields(NewJob):
        other: Any = msgspec.structs.replace(job)
        msgspec.structs.force_setattr(other, field.name, "something else")
        assert are_alike((job, job, other)) == (field.name in {"id", "record"}), field.name
