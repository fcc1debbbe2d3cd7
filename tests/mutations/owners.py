"""Faults against one owner, numbered turns, the fleet and blame."""

from __future__ import annotations

from .word import mutation

CHARGED = "cause is Outcome.CRASHED and each.guilt == blamed"
OWNER = 'row[1] != ack.token or row[2] != worker or row[0] != "running"'

OWNERS = (
    # ---- acks ---------------------------------------------------------------------------------
    mutation(
        "ack-token", "An ack is compared by its token", "turns",
        ("acks.py", OWNER, 'row[2] != worker or row[0] != "running"'),
    ),
    mutation(
        "ack-token-in-bulk", "An ack is compared by its token, also among plain successes", "turns",
        ("sql/ack.sql", "and j.token = a.column2", ""),
    ),
    mutation(
        "ack-worker", "An ack is compared by its worker", "turns",
        ("acks.py", OWNER, 'row[1] != ack.token or row[0] != "running"'),
        ("sql/ack.sql", "and j.worker = ?2\n", "and ?2 is not null\n"),
    ),
    mutation(
        "ack-not-running", "A late ack changes nothing of a job that waits again", "turns pairs",
        ("acks.py", OWNER, "row[1] != ack.token or row[2] != worker"),
    ),
    mutation(
        "ack-repeat-is-stale", "An owner's own repeated ack is told already", "turns lost",
        ("acks.py", 'return bool(tx.all("ended_by"', 'return False and bool(tx.all("ended_by"'),
    ),
    mutation(
        "ack-another-word-is-already", "Another word of the owner is told stale", "turns",
        ("sql/ack.sql", "and acked = 1 and outcome = :outcome", "and acked = 1 and :outcome <> ''"),
    ),
    mutation(
        "ack-stale-is-already", "A stale ack is told stale", "turns",
        ("acks.py", 'return bool(tx.all("ended_by"', 'return True or bool(tx.all("ended_by"'),
    ),
    mutation(
        "rescued-is-already", "A rescued owner's ack is stale, not already", "turns",
        ("sql/fleet.sql", "else ?6 end,\n    worker = null\n", "else ?6 end\n"),
    ),
    mutation(
        "unstorable-poisons", "One unstorable ack never blocks the others", "turns",
        ("acks.py", "        verdicts.unstorable.append(lease)\n\n\n", "        raise\n\n\n"),
    ),
    mutation(
        "refund-forgotten", "Snoozed and interrupted attempts are given back", "acks",
        ("acks.py", "        attempt -= 1\n", "        pass\n"),
    ),
    mutation(
        "attempt-by-number", "Attempts are kept under their token: numbers repeat", "acks",
        ("acks.py", "acked = (ack.id, token, epoch, attempt,", "acked = (ack.id, attempt, epoch, attempt,"),
    ),
    mutation(
        "park-ignored", "A parked job waits for a worker that knows its task", "turns",
        ("acks.py", "if ack.park:", "if False:"),
    ),
    # ---- turns --------------------------------------------------------------------------------
    mutation(
        "turn-of-the-lost", "A lost worker's turn applies nothing", "turns rescues",
        ("turns.py", "if found is None or found[0]:", "if found is None:"),
    ),
    mutation(
        "turn-number-ignored", "A lower number is a conflict", "turns",
        ("turns.py", "if turn.number < last:", "if False:"),
    ),
    mutation(
        "repeat-claims-anew", "A repeated turn hands out nothing new", "turns lost",
        ("turns.py", "if turn.number > last:", "if turn.number >= last:"),
    ),
    mutation(
        "unheard-forgotten", "Claims whose reply was lost come again", "turns lost",
        ("turns.py", "if turn.seen < last or turn.number == last:", "if False:"),
    ),
    mutation(
        "gone-not-told", "A worker learns which of its leases are gone", "turns",
        ("turns.py", "_gone(tx, turn) if turn.holds else ()", "()"),
    ),
    mutation(
        "order-not-told", "The owner is told of a cancel order", "orders",
        ("sql/claim.sql", "where worker = ? and ordered is not null", "where worker = ? and ordered is null"),
    ),
    mutation(
        "token-is-the-clock", "Tokens grow also while the clock stands or goes back", "times",
        ("sql/claim.sql", "token = max(token + 1, ?2)", "token = ?2"),
    ),
    # ---- fleet --------------------------------------------------------------------------------
    mutation(
        "rescue-beat", "Rescue is compare-and-set on the beat number", "rescues",
        ("sql/fleet.sql", "and number = ? and lost = 0", "and (number = ? or 1) and lost = 0"),
    ),
    mutation(
        "rescue-twice", "Of two rescuers one takes", "rescues",
        ("sql/fleet.sql", "and number = ? and lost = 0", "and number = ?"),
    ),
    mutation(
        "rescue-everybody", "A rescue moves only the jobs of its worker", "rescues",
        ("sql/fleet.sql", "state = 'running' and worker = ?\norder", "state = 'running' and ? <> ''\norder"),
    ),
    mutation(
        "rescue-keeps-attempt", "A crash or a loss gives the attempt back", "suspects",
        ("fleet.py", "held.attempt - 1", "held.attempt"),
    ),
    mutation(
        "beat-of-the-lost", "A lost worker's beat is not alive", "rescues",
        ("sql/fleet.sql", "where id = ? and lost = 0 returning number", "where id = ? returning number"),
    ),
    mutation(
        "beat-not-counted", "Each beat counts up", "rescues",
        ("sql/fleet.sql", "set number = number + 1, seen", "set number = number, seen"),
    ),
    mutation(
        "retire-drops-acks", "A retirement applies the acks of the guilty first", "rescues",
        ("fleet.py", "    take_acks(tx, worker, acks)\n", ""),
    ),
    mutation(
        "retire-keeps-row", "A retired worker's row goes", "rescues",
        ("fleet.py", '    tx.run("forget_worker", (worker,))\n', ""),
    ),
    # ---- blame --------------------------------------------------------------------------------
    mutation(
        "neighbours-blamed", "With a suspect among them only the suspect is charged", "suspects",
        ("fleet.py", CHARGED, "cause is Outcome.CRASHED"),
    ),
    mutation(
        "silence-blamed", "A loss is no blame at all", "suspects",
        ("fleet.py", CHARGED, "each.guilt == blamed"),
    ),
    mutation(
        "crash-without-end", "The crash budget ends a job", "suspects",
        ("fleet.py", "charge.charged and charge.named and crashes >= held.crash_limit", "False"),
    ),
    mutation(
        "dead-for-a-neighbour", "Only a suspect, or a job that ran alone, can die of a crash", "suspects",
        ("fleet.py", "each.guilt == 2 or len(held) == 1", "True"),
    ),
    mutation(
        "suspect-first", "A last crash is charged only where nobody else is likelier", "suspects",
        ("fleet.py", "min((each.guilt for each in held if each.guilt), default=0)", "max(each.guilt for each in held)"),
    ),
    mutation(
        "many-suspects", "A worker holds at most one suspect", "suspects",
        ("claims.py", "min(want.n, suspects)", "want.n"),
    ),
    mutation(
        "early-begins-again", "An early job never begins twice", "orders",
        ("fleet.py", "elif held.early or (", "elif ("),
    ),
    mutation(
        "order-lost-in-rescue", "A cancel order beats a rescue", "orders",
        ("fleet.py", "if held.flags & ORDERED:", "if False:"),
    ),
    mutation(
        "cancel-overwritten", "Cancel is final: a late success does not win", "orders races",
        ("acks.py", "ordered = flags & ORDERED", "ordered = 0"),
        ("sql/act.sql", "flags = flags | 2", "flags = flags"),
    ),
)  # fmt: skip
