"""On Redis. Each peer at its best setting for no-op jobs; what it does by default about results stays.

What the store shows done: dramatiq deletes a message at its ack, taskiq acknowledges it in its stream, BullMQ and
taskito keep a finished job. huey takes a job from its list before it runs it: it is at most once.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks import peers
from benchmarks.processes import ROOT
from benchmarks.systems import PROGRAMS, Questions, System
from benchmarks.systems.ours import mainspring
from benchmarks.systems.taskito import taskito


def _questions(waiting: str, count: str = "") -> Questions:
    return Questions(left=waiting, waiting=waiting, count=count)


_OURS = _questions(
    "return redis.call('zcard', '{ms:default}:ids') - redis.call('zcard', '{ms:default}:done')",
    "return redis.call('zcard', '{ms:default}:done')",
)
_PENDING_IN_GROUP = """
local group = redis.call('xinfo', 'groups', 'taskiq')[1]
local found = {}
for i = 1, #group, 2 do found[group[i]] = group[i + 1] end
return found['pending'] + found['lag']
"""
_TASKITO = _questions(
    "return redis.call('scard', 'taskito:jobs:status:0') + redis.call('scard', 'taskito:jobs:status:1')",
    "return redis.call('scard', 'taskito:jobs:status:2') + redis.call('scard', 'taskito:archived:status:2')",
)
_BULL = "return redis.call('llen', 'bull:bench:wait') + redis.call('llen', 'bull:bench:active')"


def floor() -> System:
    return System(
        program="floor_redis",
        worker=(sys.executable, "-m", PROGRAMS + "floor_redis"),
        least=20_000,
        asked=_questions("return redis.call('llen', 'ready') + redis.call('hlen', 'running')"),
    )


def dramatiq() -> System:
    return System(
        program="dramatiq_app",
        worker=(peers.script("dramatiq"), PROGRAMS + "dramatiq_app", "-p", "1", "-t", "8"),
        interpreter=peers.python(),
        asked=_questions("return redis.call('hlen', 'dramatiq:default.msgs')"),
    )


def dramatiq_flows() -> System:
    """With stored results and callbacks of groups."""
    return System(
        program="dramatiq_flows_app",
        worker=(peers.script("dramatiq"), PROGRAMS + "dramatiq_flows_app", "-p", "1", "-t", "8"),
        interpreter=peers.python(),
        asked=_questions("return redis.call('hlen', 'dramatiq:default.msgs')"),
    )


def celery() -> System:
    return System(
        program="celery_app",
        worker=(
            peers.script("celery", "celery"), "-A", PROGRAMS + "celery_app", "worker", "--pool", "threads",
            "--concurrency", "8", "--without-gossip", "--without-mingle", "--loglevel", "WARNING",
        ),
        interpreter=peers.python("celery"),
        asked=_questions("return redis.call('llen', 'celery') + redis.call('hlen', 'unacked')"),
    )  # fmt: skip


def taskiq() -> System:
    return System(
        program="taskiq_app",
        worker=(
            peers.script("taskiq"), "worker", PROGRAMS + "taskiq_app:broker", "--workers", "1",
            "--max-async-tasks", "100", "--max-prefetch", "100", "--log-level", "WARNING", "--no-parse",
        ),
        interpreter=peers.python(),
        asked=_questions(_PENDING_IN_GROUP),
    )  # fmt: skip


def huey() -> System:
    return System(
        program="huey_app",
        worker=(peers.script("huey_consumer"), PROGRAMS + "huey_app.app", "-w", "4", "-q"),
        interpreter=peers.python(),
        asked=_questions("return redis.call('llen', 'huey.redis.bench')"),
    )


def bullmq() -> System:
    command = (peers.node(), str(ROOT / "benchmarks" / "programs" / "bullmq_app.cjs"), str(peers.home_of_node()))
    return System(
        program="bullmq_app",
        worker=(*command, "worker"),
        producer=(*command, "produce"),
        asked=_questions(_BULL, "return redis.call('zcard', 'bull:bench:completed')"),
    )


SYSTEMS = {
    "floor": floor,
    "dramatiq": dramatiq,
    "dramatiq flows": dramatiq_flows,
    "celery": celery,
    "taskiq": taskiq,
    "huey": huey,
    "bullmq": bullmq,
    "mainspring async": partial(mainspring, _OURS),
    "mainspring thread": partial(mainspring, _OURS, "thread"),
    "taskito": partial(taskito, _TASKITO),
}
