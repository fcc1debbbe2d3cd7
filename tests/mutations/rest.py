"""Faults against durability, order, dependents, time, what people do, and bounds."""

from __future__ import annotations

from .word import mutation

POKE = "    def poke(self, queues: set[str]) -> None:\n"
FRESH = "and (expires is null or expires > ?2)"

REST = (
    # ---- enqueue ------------------------------------------------------------------------------
    mutation(
        "retry-forgets-finished", "A repeated enqueue makes no second job of a finished one", "enqueue",
        ("sql/enqueue.sql", "    or exists (select 1 from {t}finished where id = :id)\n", ""),
    ),
    mutation(
        "retry-forgets-dead", "A repeated enqueue makes no second job of a dead one", "enqueue",
        ("sql/enqueue.sql", "    or exists (select 1 from {t}dead where id = :id)", ""),
    ),
    mutation(
        "retry-unchecked", "A repeated enqueue makes each job once", "enqueue lost",
        ("enqueue.py", "if not repeat and not held and _plain", "if not held and _plain"),
        ("enqueue.py", "anywhere=repeat", "anywhere=False"),
    ),
    mutation(
        "late-first-try", "A first try that comes after its repeat makes nothing twice", "enqueue",
        ("enqueue.py", 'batch.retry or tx.first("retried", (batch.id,)) is not None', "batch.retry"),
    ),
    mutation(
        "half-a-batch", "A batch is inserted as a whole or not at all", "enqueue",
        ("enqueue.py", "            raise StoreConflict(", "            return 1\n            raise StoreConflict("),
    ),
    mutation(
        "final-parent-waited-for", "A parent that is final already is resolved at once", "enqueue",
        ("sql/enqueue.sql", "case when state = 'succeeded' then 1 else 2 end", "0"),
    ),
    mutation(
        "born-in-spite", "A child of a dead parent is born cancelled", "enqueue",
        ("enqueue.py", 'ended == 2 and edge.policy == "fail"', "False"),
    ),
    # ---- order --------------------------------------------------------------------------------
    mutation(
        "order-by-id", "Order is by the store's seq, not by the client's id", "order times",
        ("sql/claim.sql", "order by priority desc, seq", "order by priority desc, id", 4),
        ("claims.py", "return -row[5], row[14]", "return -row[5], row[0]"),
        ("picking.py", "[((head.rank, head.seq), head)", "[((head.rank, *head.id), head)"),
    ),
    mutation(
        "priority-ignored", "Higher priority comes first", "order",
        ("sql/claim.sql", "order by priority desc, seq", "order by seq", 4),
        ("claims.py", "return -row[5], row[14]", "return 0, row[14]"),
    ),
    mutation(
        "oldest-ignored", "The lowest priority never starves", "order",
        ("claims.py", "if left > 0 and want.oldest > 0:", "if False:"),
    ),
    mutation(
        "expired-handed-out", "An expired job is never handed out", "order",
        ("sql/claim.sql", FRESH, "and ?2 > 0", 8),
    ),
    mutation(
        "back-to-the-front", "Each entry into ready gives a new place in the line", "order",
        ("sql/ack.sql", "-?3 else ?3 end\n", "-?3 else min(seq, ?3) end\n"),
    ),
    # ---- dependents ---------------------------------------------------------------------------
    mutation(
        "children-forgotten", "Every end of a parent resolves its children", "edges",
        ("finish.py", "if flags & HAS_CHILDREN:", "if False:"),
    ),
    mutation(
        "policy-ignored", "A bad end cancels the child unless its policy says ignore", "edges",
        ("finish.py", 'policy == "fail" and not succeeded', "False"),
    ),
    mutation(
        "cascade-stops", "A cancelled child is an end for its own children", "edges",
        ("finish.py", "                ended.append((child, False))\n", ""),
    ),
    mutation(
        "join-fires-early", "A join waits for all its parents", "edges",
        ("freeing.py", "if job.deps > 1:", "if False:"),
    ),
    mutation(
        "delay-forgotten", "An unblocked child waits for its time", "edges",
        ("freeing.py", "if job.due is not None and job.due > tx.now:", "if False:"),
    ),
    mutation(
        "deleted-parent-waited-for", "Nobody waits for a job that is in no place", "edges",
        ("act.py", "        resolve(tx, job, succeeded=False)\n", "        pass\n"),
    ),
    # ---- time ---------------------------------------------------------------------------------
    mutation(
        "promoted-early", "A job is not promoted before it is due", "promote",
        ("sql/promote.sql", "and due <= ?", "and due <= ? + 3600000000"),
    ),
    mutation(
        "promoted-in-any-order", "Those due first stand first in line", "promote",
        ("sql/promote.sql", "order by due, seq", "order by due desc"),
    ),
    mutation(
        "running-expires", "A job that started in time does not expire", "promote",
        ("sql/promote.sql", "where expires is not null and state <> 'running' and expires <= ?", "where expires <= ?"),
    ),
    mutation(
        "next-due-unknown", "A promotion tells when to come again", "promote",
        ("sql/promote.sql", "select min(expires) as at from", "select null as at from"),
    ),
    # ---- by hand ------------------------------------------------------------------------------
    mutation(
        "act-in-any-state", "An action works only from the states of the table", "pairs acting",
        ("act.py", "if state not in sources(action):", "if state not in sources(action) | {State.RUNNING}:"),
    ),
    mutation(
        "retry-in-two-places", "A retried job is in one place", "acting",
        ("act.py", '    tx.run("drop_" + table, (job,))\n    tx.run("drop_progress", (job,))\n', ""),
    ),
    mutation(
        "retry-token-from-zero", "A retried job's tokens go on", "acting",
        ("sql/act.sql", " end, token, worker, epoch + 1", " end, 0, worker, epoch + 1", 2),
    ),
    mutation(
        "retry-same-epoch", "A hand-made retry opens a new epoch", "acting",
        ("sql/act.sql", "worker, epoch + 1", "worker, epoch", 2),
    ),
    mutation(
        "empty-query-obeyed", "An empty query is refused", "acting",
        ("act.py", "if query.empty:", "if False:"),
    ),
    mutation(
        "slices-without-end", "Work in slices reaches every job and ends", "acting",
        ("act.py", 'Action.CANCEL: "ordered is null", ', ""),
    ),
    # ---- bounds and the rest ------------------------------------------------------------------
    mutation(
        "report-unguarded", "Only the owner of a good lease reports", "reports items",
        ("sql/report.sql", "j.token = ? and j.worker = ? and", "(j.token = ? or 1) and (j.worker = ? or 1) and"),
    ),
    mutation(
        "logs-without-end", "At most 1,000 log lines are kept per job", "reports",
        ("reports.py", "LINES_KEPT = 1000", "LINES_KEPT = 100_000"),
    ),
    mutation(
        "young-pruned", "Nothing younger than keep_at_least is pruned", "pruning",
        ("prune.py", "return min(before, tx.now - retention.keep_at_least)", "return before"),
    ),
    mutation(
        "dead-pruned-with-the-rest", "The dead are kept longer", "pruning",
        ("prune.py", "retention.keep_dead,", "retention.keep,"),
    ),
    mutation(
        "older-document-wins", "Older code never overwrites newer", "documents",
        ("sql/docs.sql", "\nwhere excluded.version >= version", ""),
    ),
    mutation(
        "namespaces-shared", "Two namespaces never see each other", "life",
        ("store.py", "self._namespace = namespace\n", 'self._namespace = namespace = "shared"\n'),
    ),
    mutation(
        "nobody-woken", "Work that another client brought wakes the listeners", "waking",
        ("wake.py", POKE, POKE + "        return\n\n    def _unused(self, queues: set[str]) -> None:\n"),
    ),
)  # fmt: skip
