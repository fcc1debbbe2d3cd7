"""Faults against acks, turns, the order of claims, and promotions."""

from __future__ import annotations

from .mutation import Mutation, mutation

CLAIMS: tuple[Mutation, ...] = (
    mutation(
        "ack-token", "An ack is compared by its token", "claims.turns",
        ("jobs/ack.py",
         "job.token != ack.token or job.worker != worker or job.state != State.RUNNING",
         "job.worker != worker or job.state != State.RUNNING"),
    ),
    mutation(
        "ack-token-in-bulk", "An ack is compared by its token, also among plain successes", "claims.turns",
        ("sql/ack.sql", "and j.token = a.column2", ""),
    ),
    mutation(
        "ack-worker", "An ack is compared by its worker", "claims.turns",
        ("jobs/ack.py",
         "job.token != ack.token or job.worker != worker or job.state != State.RUNNING",
         "job.token != ack.token or job.state != State.RUNNING"),
    ),
    mutation(
        "ack-not-running", "A late ack changes nothing of a job that waits again", "claims.turns jobs.transitions",
        ("jobs/ack.py",
         "job.token != ack.token or job.worker != worker or job.state != State.RUNNING",
         "job.token != ack.token or job.worker != worker"),
    ),
    mutation(
        "ack-repeat-is-stale", "A repeated ack of the same owner is answered 'already'",
        "claims.turns claims.lost_replies",
        ("jobs/ack.py", 'return bool(tx.all("ended_by"', 'return False and bool(tx.all("ended_by"'),
    ),
    mutation(
        "other-ack-is-already", "A different ack of the same owner is answered 'stale'", "claims.turns",
        ("sql/ack.sql", "and acked = 1 and outcome = :outcome", "and acked = 1 and :outcome <> ''"),
    ),
    mutation(
        "stale-ack-is-already", "A stale ack is answered 'stale'", "claims.turns",
        ("jobs/ack.py", 'return bool(tx.all("ended_by"', 'return True or bool(tx.all("ended_by"'),
    ),
    mutation(
        "rescued-ack-is-already", "The ack of a rescued owner is stale, not already", "claims.turns",
        ("sql/fleet.sql", "    worker = ?8\n", "    worker = coalesce(?8, worker)\n"),
        ("sql/ack.sql", "\n    and not exists (select 1 from {t}attempts where job = :id and token = :token)", ""),
    ),
    mutation(
        "unstorable-poisons", "One unstorable ack never blocks the others", "claims.turns",
        ("jobs/ack.py", "        verdicts.unstorable.append(lease)\n\n\n", "        raise\n\n\n"),
    ),
    mutation(
        "refund-forgotten", "Snoozed and interrupted attempts are given back", "claims.acks",
        ("jobs/ack.py", "job.attempt - 1 if ack.refund else job.attempt", "job.attempt"),
    ),
    mutation(
        "attempt-by-number", "Attempts are kept by token, because attempt numbers repeat", "claims.acks",
        ("jobs/ack.py", "tx.add_attempt((ack.id, job.token, *facts))", "tx.add_attempt((ack.id, job.attempt, *facts))"),
    ),
    mutation(
        "park-ignored", "A parked job waits for a worker that knows its task", "claims.turns",
        ("jobs/ack.py",
         "    if ack.park:\n        placement = placement._replace(lane=parked_lane_of(job.lane",
         "    if False:\n        placement = placement._replace(lane=parked_lane_of(job.lane"),
    ),
    mutation(
        "lost-worker-takes-a-turn", "A turn of a lost worker applies nothing", "claims.turns workers.rescue",
        ("turn.py", "if worker is None or worker[0]:", "if worker is None:"),
    ),
    mutation(
        "turn-number-ignored", "A turn with a lower number is a conflict", "claims.turns",
        ("turn.py", "if turn.number < last:", "if False:"),
    ),
    mutation(
        "repeated-turn-claims", "A repeated turn hands out nothing new", "claims.turns claims.lost_replies",
        ("turn.py", "is_new = turn.number > last", "is_new = turn.number >= last"),
    ),
    mutation(
        "lost-reply-forgotten", "Claims whose reply was lost are sent again", "claims.turns claims.lost_replies",
        ("turn.py", "_unread_claims(tx, turn) if turn.seen < last or not is_new else []", "[]"),
    ),
    mutation(
        "lost-leases-not-named", "The reply names the leases that the worker has lost", "claims.turns",
        ("turn.py", "_lost_leases(tx, turn) if turn.holds else ()", "()"),
    ),
    mutation(
        "token-is-the-clock", "Tokens grow even if the clock stops or goes back", "claims.tokens_and_clocks",
        ("sql/claim.sql", "token = max(token + 1, ?2)", "token = ?2"),
    ),
    mutation(
        "order-by-id", "The order is by seq of the store, not by the id of the client",
        "claims.order claims.tokens_and_clocks",
        ("rows.py", "return order_key(row[14], row[5]), row[14]", "return -row[5], row[0]"),
    ),
    mutation(
        "priority-ignored", "Higher priority comes first", "claims.order",
        ("rows.py", "return order_key(row[14], row[5]), row[14]", "return 0, row[14]"),
        ("jobs/claim/picker.py", "return LaneHead(order_key(seq, priority), seq", "return LaneHead(seq, seq"),
    ),
    mutation(
        "age-ignored", "Jobs of the lowest priority do not starve", "claims.order",
        ("jobs/claim/picker.py", "return LaneHead(order_key(seq, priority), seq",
         "return LaneHead(order_key(seq, priority << 20), seq"),
    ),
    mutation(
        "seq-without-clock", "The order key follows the clock of the store", "claims.order",
        ("sql/enqueue.sql", "set value = max(value, ?) + ?", "set value = value + min(?, 0) + ?"),
    ),
    mutation(
        "expired-handed-out", "An expired job is never handed out", "claims.order",
        ("sql/claim.sql", "and (expires is null or expires > ?2)", "and ?2 > 0", 4),
    ),
    mutation(
        "place-kept-in-ready", "Each entry into ready gives a new seq", "claims.order",
        ("sql/ack.sql", "-?3 else ?3 end\n", "-?3 else min(seq, ?3) end\n"),
    ),
    mutation(
        "promoted-early", "A job is not promoted before it is due", "claims.promote",
        ("sql/promote.sql", "and due <= ?", "and due <= ? + 3600000000"),
    ),
    mutation(
        "promoted-in-any-order", "Jobs are promoted in the order of their due times", "claims.promote",
        ("sql/promote.sql", "order by due, seq", "order by due desc"),
    ),
    mutation(
        "running-expires", "A job that started in time does not expire", "claims.promote",
        ("sql/promote.sql", "where expires is not null and state <> {RUNNING} and expires <= ?", "where expires <= ?"),
        ("sql/finish.sql", " and state <> {RUNNING}", ""),
    ),
    mutation(
        "retrying-expires", "A job that waits for a retry does not expire", "claims.promote jobs.transitions",
        ("sql/ack.sql", "due = ?, expires = null, attempt = ?", "due = ?, attempt = ?"),
    ),
    mutation(
        "interrupted-expires", "A job whose body was interrupted does not expire", "claims.promote",
        ("jobs/ack.py", "seq, ack.id, ack.unstarted)", "seq, ack.id, True)"),
    ),
    mutation(
        "rescued-expires", "A job that was taken from its worker does not expire", "claims.promote",
        ("sql/fleet.sql", "due = ?2, expires = null, attempt", "due = ?2, attempt"),
    ),
    mutation(
        "unstarted-never-expires", "A job that is handed back before its start keeps its expires", "claims.promote",
        ("jobs/ack.py", "seq, ack.id, ack.unstarted)", "seq, ack.id, False)"),
    ),
    mutation(
        "retried-by-hand-expires", "A retry by hand removes expires", "claims.promote",
        ("sql/actions.sql", "early, enqueued, flags,", "early, enqueued, expires, flags,", 2),
        ("sql/actions.sql", "early, enqueued, :flags,", "early, enqueued, expires, :flags,", 2),
    ),
    mutation(
        "next-due-unknown", "A promotion returns the next due time", "claims.promote",
        ("sql/promote.sql", "select min(expires) as at from", "select null as at from"),
    ),
    mutation(
        "no-listener-woken", "An enqueue of another client wakes the listeners", "claims.wake_ups",
        ("driver/database.py", "            if woken:\n", "            if False:\n"),
    ),
)  # fmt: skip
