"""Enqueue: one statement with parameters, which runs on any connection.

``statement`` writes the statement and reads its rows, ``joint`` sends it from an event loop, together with other calls,
and ``blocking`` sends it from a thread, or inside a caller's own transaction.
"""

from mainspring.stores.postgres.jobs.enqueue.blocking import BlockingProducer
from mainspring.stores.postgres.jobs.enqueue.joint import JointProducers
from mainspring.stores.postgres.jobs.enqueue.statement import enqueue_call, enqueue_reply, freed_queues

__all__ = ["BlockingProducer", "JointProducers", "enqueue_call", "enqueue_reply", "freed_queues"]
