"""Faults against beats, rescues, retirements, and the charge of crashes."""

from __future__ import annotations

from .mutation import Mutation, mutation

WORKERS: tuple[Mutation, ...] = (
    mutation(
        "cancel-order-not-sent", "The owner gets the cancel order", "claims.cancel_orders",
        ("sql/turn.sql", "where worker = ? and cancel_order is not null", "where worker = ? and cancel_order is null"),
    ),
    mutation(
        "rescue-beat", "Rescue is compare-and-set on the beat number", "workers.rescue",
        ("sql/fleet.sql", "and number = ? and lost = 0", "and (number = ? or 1) and lost = 0"),
    ),
    mutation(
        "rescue-twice", "Of two rescuers only one takes the jobs", "workers.rescue",
        ("sql/fleet.sql", "and number = ? and lost = 0", "and number = ?"),
    ),
    mutation(
        "rescue-of-all-workers", "A rescue moves only the jobs of its worker", "workers.rescue",
        ("sql/fleet.sql", "state = {RUNNING} and worker = ?\norder", "state = {RUNNING} and ? <> ''\norder"),
    ),
    mutation(
        "rescue-keeps-attempt", "A crash or a loss gives the attempt back", "workers.crashes",
        ("jobs/ack.py", "attempt, crashes = job.attempt - 1,", "attempt, crashes = job.attempt,"),
    ),
    mutation(
        "lost-worker-beats", "A beat of a lost worker is answered 'not alive'", "workers.rescue",
        ("sql/fleet.sql", "where id = ? and lost = 0 returning number", "where id = ? returning number"),
    ),
    mutation(
        "beat-not-counted", "Each beat raises the beat number", "workers.rescue",
        ("sql/fleet.sql", "set number = number + 1, seen", "set number = number, seen"),
    ),
    mutation(
        "retire-drops-acks", "A retirement applies the acks of guilty jobs first", "workers.rescue",
        ("fleet.py", "    apply_acks(tx, worker, acks)\n", ""),
    ),
    mutation(
        "retire-keeps-row", "A retirement deletes the row of the worker", "workers.rescue",
        ("fleet.py", '    tx.run("drop_worker", (worker,))\n', ""),
    ),
    mutation(
        "crash-charged-to-all", "If suspects ran, a crash is charged to no other job", "workers.crashes",
        ("fleet.py", "cause is Outcome.CRASHED and each.guilt == charged_guilt", "cause is Outcome.CRASHED"),
    ),
    mutation(
        "loss-charged", "A loss is charged to no job", "workers.crashes",
        ("fleet.py", "cause is Outcome.CRASHED and each.guilt == charged_guilt", "each.guilt == charged_guilt"),
    ),
    mutation(
        "crash-limit-ignored", "The crash limit makes a job dead", "workers.crashes",
        ("jobs/ack.py", "charge.charged and charge.certain and crashes >= job.crash_limit", "False"),
    ),
    mutation(
        "dead-by-uncertain-crash", "A crash makes a job dead only if it was a suspect or ran alone", "workers.crashes",
        ("fleet.py", "each.guilt == GUILT_OF_SUSPECT or len(jobs) == 1", "True"),
    ),
    mutation(
        "suspect-charged-first", "A last crash is charged only if no other job is likelier", "workers.crashes",
        ("fleet.py",
         "min((each.guilt for each in jobs if each.guilt), default=0)",
         "max((each.guilt for each in jobs), default=0)"),
    ),
    mutation(
        "crash-ack-not-charged", "A crash that a worker reports is charged to its job", "workers.crashes",
        ("jobs/ack.py", "CrashCharge(True, True, ack.delays", "CrashCharge(False, True, ack.delays"),
    ),
    mutation(
        "crash-ack-uncertain", "The crash that a worker reports may be the last of its job", "workers.crashes",
        ("jobs/ack.py", "CrashCharge(True, True, ack.delays", "CrashCharge(True, False, ack.delays"),
    ),
    mutation(
        "crash-ack-forgets-reason", "A job that ran out of memory is dead for this reason", "workers.crashes",
        ("jobs/ack.py", "ack.reason or Reason.CRASHED", "Reason.CRASHED"),
    ),
    mutation(
        "crash-ack-forgets-owner", "A repeated report of a crash is 'already'", "workers.crashes claims.turns",
        ("jobs/ack.py", "ack.outcome, 1, ack.error", "ack.outcome, ack.outcome != 'crashed', ack.error"),
    ),
    mutation(
        "many-suspects", "A worker holds at most one suspect", "workers.crashes",
        ("jobs/claim/wants.py", "min(want.n, handed.suspects)", "want.n"),
    ),
    mutation(
        "early-job-begins-twice", "An early job never begins twice", "claims.cancel_orders",
        ("jobs/ack.py", "if job.early or charge", "if charge"),
    ),
    mutation(
        "cancel-order-lost-in-rescue", "A rescue cancels a job with a cancel order", "claims.cancel_orders",
        ("jobs/ack.py", "if job.flags & FLAG_CANCEL_ORDERED:\n        return State", "if False:\n        return State"),
    ),
    mutation(
        "cancel-overwritten", "A late success does not undo a cancel order", "claims.cancel_orders claims.races",
        ("jobs/ack.py", "ordered = job.flags & FLAG_CANCEL_ORDERED", "ordered = 0"),
        ("sql/actions.sql", "flags = flags | {FLAG_CANCEL_ORDERED}", "flags = flags"),
    ),
)  # fmt: skip
