"""Faults in the settings of queues."""

from __future__ import annotations

from .word import Mutation, mutation

QUEUES: tuple[Mutation, ...] = (
    # ---- depth --------------------------------------------------------------------------------
    mutation(
        "depth-not-looked-at", "No more jobs wait than may", "depth",
        ("depths.py", "    if depth <= most:\n", "    if True:\n"),
    ),
    mutation(
        "depth-of-what-runs", "What runs does not count", "depth",
        ("sql/queues.sql", "bound = 1 and state <> 'running' and queue = ?\n\n", "bound = 1 and queue = ?\n\n"),
    ),
    mutation(
        "earlier-ones-uncounted", "What waited before counts", "depth",
        ("settings.py", "    tx.cursor.executemany(tx.sql[\"bind\"], [(id,) for id in found])\n", ""),
    ),
    mutation(
        "follow-ups-uncounted", "A follow-up job counts", "depth",
        ("inserts.py", "        bind_free(tx, job, queue)\n", "        pass\n"),
    ),
    mutation(
        "retries-uncounted", "A retry by hand counts", "depth",
        ("act.py", '"bound": is_bound(tx, queue)', '"bound": False'),
    ),
    mutation(
        "accepted-refused", "What was accepted before is let in", "depth",
        ("depths.py", " and not accepted:", ":"),
    ),
    mutation(
        "drops-its-own", "Nothing of the batch itself is dropped", "depth",
        ("depths.py", " if id not in batch]", "]"),
    ),
    mutation(
        "newest-dropped", "The oldest make room", "depth",
        ("sql/queues.sql", "order by enqueued, id\n", "order by enqueued desc, id\n"),
    ),
    # ---- switches -----------------------------------------------------------------------------
    mutation(
        "disabled-handed-out", "A disabled queue hands out nothing", "switches",
        ("modes.py", "queue.mode == QueueMode.PAUSED or queue.disabled]", "queue.mode == QueueMode.PAUSED]"),
    ),
    mutation(
        "reject-takes", "A queue that rejects takes nothing", "switches",
        ("settings.py", "    if queue.disabled == DisabledMode.REJECT:\n", "    if False:\n"),
    ),
    mutation(
        "skip-holds", "A queue that skips ends new jobs", "switches",
        ("depths.py", "    if queue.disabled == DisabledMode.SKIP:\n", "    if False:\n"),
    ),
    mutation(
        "opening-enables", "Modes and switches are two matters", "switches",
        ("sql/queues.sql", "set mode = 'open', since = 0 where", "set mode = 'open', since = 0, disabled = null where"),
    ),
    mutation(
        "enabling-wakes-nobody", "Enabling a queue wakes its listeners", "switches",
        ("settings.py", "            tx.woken.add(queue)\n", ""),
    ),
    mutation(
        "declared-over-given", "What was given lies over what is declared", "switches",
        ("settings.py", "read(self.given).over(read(self.declared))", "read(self.declared).over(read(self.given))"),
    ),
    mutation(
        "batch-declares-anew", "A batch leaves what is declared already", "switches",
        ("settings.py", "if kept(tx).get(queue, _OPEN).declared is None:", "if True:"),
    ),
    # ---- lines --------------------------------------------------------------------------------
    mutation(
        "stack-is-a-line", "The newest of a stack comes first", "lines",
        ("settings.py", 'return -seq if queue.settings.order == "lifo" else seq', "return seq"),
    ),
    mutation(
        "stack-lost-in-ack", "Who comes back to a stack comes first", "lines",
        ("sql/ack.sql", "case when seq < 0 then -?3 else ?3 end", "?3"),
    ),
    mutation(
        "stack-lost-in-promotion", "Who is late in a stack comes first", "lines",
        ("sql/promote.sql", "case when seq < 0 then -?1 else ?1 end", "?1"),
    ),
    mutation(
        "stack-lost-in-rescue", "Who is rescued comes first in a stack", "lines",
        ("sql/fleet.sql", "case when seq < 0 then -?6 else ?6 end", "?6"),
    ),
    mutation(
        "stack-lost-in-unblock", "A child comes first in a stack", "lines",
        ("sql/finish.sql", "case when seq < 0 then -?3 else ?3 end", "?3"),
    ),
    mutation(
        "stack-lost-in-retry", "Who is retried by hand comes first in a stack", "lines",
        ("sql/act.sql", "case when seq < 0 then -:seq else :seq end", ":seq", 2),
    ),
    mutation(
        "queue-unlimited", "Every job of a queue names its limits", "lines",
        ("settings.py", "    return limited(job, queue)\n", "    return job\n"),
    ),
    mutation(
        "follow-ups-unlimited", "A follow-up job names the limits of its queue", "lines",
        ("inserts.py", "job, seq = limited(job, queue), placed(seq, queue)", "job, seq = job, placed(seq, queue)"),
    ),
)  # fmt: skip
