"""Faults against limits: rooms, lanes with keys, rates and guests."""

from __future__ import annotations

from .word import mutation

LIMITS = (
    mutation(
        "limit-uncounted", "A limit counts what runs already", "buckets races",
        ("room.py", "running.count(name) + held + guests", "0"),
    ),
    mutation(
        "limit-per-job", "A limit holds within one turn", "buckets",
        ("room.py", "        self._used += n\n", "        pass\n"),
    ),
    mutation(
        "hold-leaks", "Every door out of running frees its place", "limits",
        ("sql/limits.sql", "where bucket = ? and job = ?", "where bucket = ? and job = ? and 0"),
    ),
    mutation(
        "freed-unsaid", "Whoever waits for the places of a gate is looked for", "limits",
        ("sql/ack.sql", "where l.kind is null or l.kind = 'concurrency'", "where false"),
    ),
    mutation(
        "uneven-costs", "A lane is claimed from in bulk only if its jobs cost the same", "roomy",
        ("claims.py", "costs_in(found.pop()) if len(found) == 1 else", "costs_in(min(found)) if found else"),
        ("claims.py", "return not found and min(", "return min("),
    ),
    mutation(
        "one-bucket-is-enough", "With two buckets both need room", "buckets",
        ("rooms.py", "return [name for name in buckets if not", "return [name for name in list(buckets)[:1] if not"),
    ),
    mutation(
        "freed-place-wakes-nobody", "Who frees a place of a gate wakes who waits for it", "limits",
        ("parking.py", "    elif rooms[bucket].most() > 0:\n", "    elif False:\n"),
    ),
    mutation(
        "declaration-over-the-operator", "What somebody set outlives declarations", "limits",
        ("sql/limits.sql", "coalesce(override, size)", "size"),
    ),
    mutation(
        "limit-made-anew", "A job leaves a limit that is known as it stands", "limits",
        ("sql/limits.sql", "insert or ignore into {t}limits", "insert or replace into {t}limits"),
    ),
    mutation(
        "unknown-is-full", "A limit that is not known limits nothing", "limits",
        ("rooms.py", '_UNKNOWN = Size("", ANY, 0, 0)', '_UNKNOWN = Size("concurrency", 0, 0, 0)'),
    ),
    mutation(
        "change-wakes-nobody", "A changed limit wakes who waits for it", "limits",
        ("parking.py", "    tx.woken.update(queue for (queue,) in tx.all(\"waits\", (limit,)))\n", ""),
    ),
    # ---- lanes with keys ----------------------------------------------------------------------
    mutation(
        "parked-for-ever", "A freed place goes to a key that waits", "limits",
        ("parking.py", "        if n > 0:\n", "        if False:\n"),
    ),
    mutation(
        "place-lies-idle", "A place that one lane cannot use goes to the next", "limits",
        ("keyed.py", "            if name != parked_on and not", "            if False and not"),
    ),
    mutation(
        "full-lanes-hide-others", "However many lanes are full, those with room are found", "limits",
        ("claims.py", "self.more = self.more or any(line.looked >= PATIENCE for line in lines)", "self.more = False"),
    ),
    mutation(
        "new-priority-not-found", "A job that changes its priority is found", "limits",
        ("act.py", "    if ready:\n", "    if False:\n"),
    ),
    mutation(
        "keys-by-priority-only", "The oldest of all keys comes by age", "limits",
        ("keyed.py", "(front.seq,) if self._aged else", "(front.rank, front.seq) if self._aged else"),
    ),
    mutation(
        "limited-ahead", "A want gets no more limited jobs than it asks for", "limits",
        ("picking.py", "self.limited -= picked.is_short", "self.limited -= 0"),
    ),
    # ---- rates --------------------------------------------------------------------------------
    mutation(
        "starts-unwritten", "A rate counts over turns and workers", "rates",
        ("claims.py", "        rooms.write()\n", "        pass\n"),
    ),
    mutation(
        "window-too-short", "No window ever has more than the rate allows", "rates",
        ("rates.py", "self._before = tx.now - limit.per\n", "self._before = tx.now - limit.per // 2\n"),
    ),
    mutation(
        "start-moved-back", "Starts that share a row count from the last of them on", "rates",
        ("rates.py", "max(newest[1], tx.now), n + newest[2]", "newest[1], n + newest[2]"),
    ),
    mutation(
        "cost-ignored", "Costs add up", "rates",
        ("places.py", "costs.get(each.name, 0) + max(each.cost, 0)", "1"),
    ),
    mutation(
        "dear-job-stuck", "A cost above the size counts as all of it", "rates",
        ("rates.py", "min(max(cost, 1), self.size) <= self.most()", "cost <= self.most()"),
    ),
    mutation(
        "spent-ignored", "What an attempt really cost counts", "rates",
        ("rates.py", "        more = real - min(cost, self.size)\n", "        more = 0\n"),
    ),
    mutation(
        "slow-ignored", "A slowed rate lets nothing through", "rates",
        ("rates.py", "if self._slow <= self._tx.now else 0", "if True else 0"),
    ),
    mutation(
        "slow-shortened", "A shorter word does not shorten it", "rates",
        ("sql/limits.sql", "slow = max(slow, excluded.slow)", "slow = excluded.slow"),
    ),
    mutation(
        "pace-without-burst", "A burst is let through after quiet time", "rates",
        ("rates.py", "self._burst = max(limit.burst, 1)", "self._burst = 1"),
    ),
    mutation(
        "pace-saves-up", "Quiet time gives no more than a burst", "rates",
        ("rates.py", "self._tat = max(self._tat, self._now) + time", "self._tat = self._tat + time"),
    ),
    mutation(
        "moment-untold", "A lane that waits for a rate is told by the next moment", "rates",
        ("promote.py", "(next_due, _look_again(tx))", "(next_due,)"),
    ),
    # ---- guests -------------------------------------------------------------------------------
    mutation(
        "guest-for-ever", "A guest whose time is over holds nothing", "limits",
        ("sql/limits.sql", "where bucket = ?1 and until > ?2", "where bucket = ?1 and ?2"),
    ),
    mutation(
        "guest-starts-again", "Taking again renews and starts nothing", "limits",
        ("guests.py", 'tx.all("renew_guest", (until, guest, tx.now))', "()"),
    ),
    mutation(
        "guest-takes-a-part", "A guest takes all or nothing", "limits",
        ("guests.py", "    if stuck:\n", "    if len(stuck) == len(costs):\n"),
    ),
    mutation(
        "number-repeated", "The numbers of a bucket grow, whatever the clock does", "guests",
        ("guests.py", "last[0] + 1)", "0)"),
    ),
    mutation(
        "number-renewed", "A renewal repeats its number", "guests",
        ("guests.py", "until=until, token=token)\n    tx.run", "until=until, token=token + 1)\n    tx.run"),
    ),
    mutation(
        "late-renewal-takes", "A renewal takes nothing for a guest that has left", "guests",
        ("guests.py", "    if not asked.buckets:\n", "    if False:\n"),
    ),
    mutation(
        "stay-made-shorter", "A stay is never made shorter", "guests",
        ("sql/guests.sql", "max(until, ?)", "?"),
    ),
    mutation(
        "gone-guest-listed", "Who is gone is not told of", "guests",
        ("sql/guests.sql", "where bucket >= ? and bucket < ? and until > ?", "where bucket >= ? and bucket < ? and ?"),
    ),
    mutation(
        "young-number-forgotten", "A number that may come again is kept", "guests",
        ("sql/guests.sql", "delete from {t}fences where token <= ?", "delete from {t}fences where ?"),
    ),
)  # fmt: skip
