"""Faults against modes, depth, settings and order of queues."""

from __future__ import annotations

from .mutation import Mutation, mutation

QUEUES: tuple[Mutation, ...] = (
    mutation(
        "pause-not-checked", "A paused queue hands out nothing", "queues.modes",
        ("jobs/claim/wants.py", "paused_queues(tx) if wants else None", "None"),
    ),
    mutation(
        "pause-of-all-queues", "A pause is for its queue only", "queues.modes",
        ("jobs/claim/wants.py", "if queue_of(lane) not in paused", "if False"),
    ),
    mutation(
        "draining-not-checked", "A draining queue takes no new jobs", "queues.modes",
        ("queues.py", "    if queue.mode == QueueMode.DRAINING:\n", "    if False:\n"),
    ),
    mutation(
        "draining-takes-bulk", "A draining queue takes no plain jobs either", "queues.modes",
        ("jobs/enqueue.py", "if stored and any(", "if False and any("),
    ),
    mutation(
        "opening-wakes-no-listener", "Opening a queue wakes its listeners", "queues.modes",
        ("queues.py", "    if mode is not QueueMode.PAUSED:\n", "    if False:\n"),
    ),
    mutation(
        "mode-since-now", "'since' is when the mode was first set", "queues.modes",
        ("sql/queues.sql", "\nwhere mode <> excluded.mode", ""),
    ),
    mutation(
        "depth-not-checked", "No more than max_depth jobs wait", "queues.depth",
        ("jobs/enqueue.py", "    if excess <= 0:\n", "    if True:\n"),
    ),
    mutation(
        "depth-of-running-jobs", "Running jobs do not count for the depth", "queues.depth",
        ("sql/queues.sql", "counted = 1 and state <> {RUNNING} and queue = ?\n\n", "counted = 1 and queue = ?\n\n"),
    ),
    mutation(
        "earlier-jobs-uncounted", "Jobs that waited before max_depth was set count", "queues.depth",
        ("queues.py", '    tx.cursor.executemany(tx.sql["count_job"], [(id,) for id in found])\n', ""),
    ),
    mutation(
        "follow-ups-uncounted", "A follow-up job counts for the depth", "queues.depth",
        ("jobs/follow_ups.py", "        count_if_limited(tx, job, queue)\n", "        pass\n"),
    ),
    mutation(
        "retries-uncounted", "A retry by hand counts for the depth", "queues.depth",
        ("jobs/actions.py", '"counted": is_counted(tx, queue)', '"counted": False'),
    ),
    mutation(
        "accepted-refused", "A job that was accepted before is let in", "queues.depth",
        ("jobs/enqueue.py", " and not accepted:", ":"),
    ),
    mutation(
        "drops-its-own-batch", "drop_oldest drops no job of the batch itself", "queues.depth",
        ("jobs/enqueue.py", " if id not in batch]", "]"),
    ),
    mutation(
        "newest-dropped", "drop_oldest drops the oldest jobs", "queues.depth",
        ("sql/queues.sql", "order by enqueued, id\n", "order by enqueued desc, id\n"),
    ),
    mutation(
        "disabled-handed-out", "A disabled queue hands out nothing", "queues.disabled_and_settings",
        ("queues.py", "queue.mode == QueueMode.PAUSED or queue.disabled]", "queue.mode == QueueMode.PAUSED]"),
    ),
    mutation(
        "reject-ignored", "A queue that is disabled to reject takes no jobs", "queues.disabled_and_settings",
        ("queues.py", "    if queue.disabled == DisabledMode.REJECT:\n", "    if False:\n"),
    ),
    mutation(
        "skip-ignored", "A queue that is disabled to skip cancels new jobs", "queues.disabled_and_settings",
        ("jobs/enqueue.py", "    if queue.disabled == DisabledMode.SKIP:\n", "    if False:\n"),
    ),
    mutation(
        "opening-enables", "Opening a queue does not enable it", "queues.disabled_and_settings",
        ("sql/queues.sql",
         "set mode = {QUEUE_OPEN}, since = 0 where",
         "set mode = {QUEUE_OPEN}, since = 0, disabled = null where"),
    ),
    mutation(
        "enabling-wakes-no-listener", "Enabling a queue wakes its listeners", "queues.disabled_and_settings",
        ("queues.py", "            tx.woken.add(queue)\n", ""),
    ),
    mutation(
        "declared-over-given", "Given settings replace declared settings", "queues.disabled_and_settings",
        ("queues.py", "_read(self.given).over(_read(self.declared))", "_read(self.declared).over(_read(self.given))"),
    ),
    mutation(
        "batch-declares-anew", "A batch does not change settings that are declared already",
        "queues.disabled_and_settings",
        ("queues.py", "if stored_queues(tx).get(queue, _OPEN).declared is None:", "if True:"),
    ),
    mutation(
        "lifo-is-fifo", "In a lifo queue the newest job comes first", "queues.order_and_limits",
        ("queues.py", 'return -seq if queue.settings.order == "lifo" else seq', "return seq"),
    ),
    mutation(
        "lifo-lost-in-ack", "In a lifo queue a job that is handed back comes first", "queues.order_and_limits",
        ("sql/ack.sql", "case when seq < 0 then -?3 else ?3 end", "?3"),
    ),
    mutation(
        "lifo-lost-in-promotion", "In a lifo queue a promoted job comes first", "queues.order_and_limits",
        ("sql/promote.sql", "case when seq < 0 then -?1 else ?1 end", "?1"),
    ),
    mutation(
        "lifo-lost-in-rescue", "In a lifo queue a rescued job comes first", "queues.order_and_limits",
        ("sql/fleet.sql", "case when seq < 0 then -?6 else ?6 end", "?6"),
    ),
    mutation(
        "lifo-lost-in-unblock", "In a lifo queue an unblocked child comes first", "queues.order_and_limits",
        ("sql/finish.sql", "case when seq < 0 then -?3 else ?3 end", "?3"),
    ),
    mutation(
        "lifo-lost-in-retry", "In a lifo queue a job that is retried by hand comes first", "queues.order_and_limits",
        ("sql/actions.sql", "case when seq < 0 then -:seq else :seq end", ":seq", 2),
    ),
    mutation(
        "queue-limits-ignored", "Every job of a queue names the limits of the queue", "queues.order_and_limits",
        ("queues.py", "    return add_queue_limits(job, queue)\n", "    return job\n"),
    ),
    mutation(
        "queue-limits-of-follow-ups", "A follow-up job names the limits of its queue", "queues.order_and_limits",
        ("jobs/follow_ups.py",
         "job, seq = add_queue_limits(job, queue), seq_in_queue(seq, queue)",
         "job, seq = job, seq_in_queue(seq, queue)"),
    ),
)  # fmt: skip
