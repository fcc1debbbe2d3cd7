"""Faults against limits: capacity, lanes with keys, rates and holders."""

from __future__ import annotations

from .mutation import Mutation, mutation

LIMITS: tuple[Mutation, ...] = (
    mutation(
        "breaker-overwritten", "A breaker is written only from the row that it has", "breakers.failures",
        ("sql/breakers.sql", " and rev = :expected", ""),
    ),
    mutation(
        "breaker-wakes-nobody", "A breaker that opens or closes wakes the queues that wait for it", "breakers.probes",
        ("breakers.py", "if written and swap.open_for is not None:", "if False:"),
    ),
    mutation(
        "open-breaker-moved", "A write without a moment leaves a breaker open as long as before", "breakers.failures",
        ("sql/breakers.sql", "until = coalesce(:until, until)", "until = coalesce(:until, 0)"),
    ),
    mutation(
        "freed-probe-unseen", "A probe that ends without a result leaves its place to another", "breakers.probes",
        ("breakers.py", 'if tx.first("breaker_is_half_open", (name, tx.now)):', "if False:"),
    ),
    mutation(
        "every-job-a-probe", "A half open breaker lets no more through than its probes", "breakers.probes",
        ("limits/capacity.py", "            self._used = probes + holders\n", "            self._used = holders\n"),
    ),
    mutation(
        "running-jobs-uncounted", "A limit counts the jobs that run already", "limits.buckets claims.races",
        ("limits/capacity.py", "running.count(name) + keyed + holders", "0"),
    ),
    mutation(
        "limit-per-job", "A limit holds within one turn", "limits.buckets",
        ("limits/capacity.py", "        self._used += n\n\n\nclass", "        pass\n\n\nclass"),
    ),
    mutation(
        "job-hold-leaks", "Every way out of running releases the capacity", "limits.declared",
        ("sql/limits.sql", "where bucket = ? and job = ?", "where bucket = ? and job = ? and 0"),
    ),
    mutation(
        "release-unseen-in-bulk", "A success in bulk wakes the jobs that wait for an unkeyed limit", "limits.declared",
        ("sql/ack.sql", "where l.kind is null or l.kind = {LIMIT_CONCURRENCY}", "where false"),
    ),
    mutation(
        "uneven-costs", "A lane is claimed in bulk only if its jobs have equal costs", "limits.plentiful",
        ("jobs/claim/wants.py", "costs_in(found.pop()) if len(found) == 1 else", "costs_in(min(found)) if found else"),
        ("jobs/claim/wants.py", "return not found and min(", "return min("),
    ),
    mutation(
        "one-bucket-is-enough", "A job with two buckets needs capacity in both", "limits.buckets",
        ("limits/buckets.py",
         "return [name for name in buckets if not",
         "return [name for name in list(buckets)[:1] if not"),
    ),
    mutation(
        "release-wakes-no-queue", "A release of an unkeyed limit wakes the queues that wait for it", "limits.declared",
        ("limits/waiting.py", "    elif capacities[bucket].available() > 0:\n", "    elif False:\n"),
    ),
    mutation(
        "declaration-over-override", "A size that a user set outlives declarations", "limits.declared",
        ("sql/limits.sql", "coalesce(override, size)", "size"),
    ),
    mutation(
        "limit-made-anew", "An enqueue does not change a limit that exists", "limits.declared",
        ("sql/limits.sql", "insert or ignore into {t}limits", "insert or replace into {t}limits"),
    ),
    mutation(
        "unknown-is-full", "A limit that is not known limits nothing", "limits.declared",
        ("limits/buckets.py",
         '_UNKNOWN = CurrentLimit("", UNLIMITED, 0, 0)',
         '_UNKNOWN = CurrentLimit("concurrency", 0, 0, 0)'),
    ),
    mutation(
        "change-wakes-no-queue", "A changed limit wakes the queues that wait for it", "limits.declared",
        ("limits/waiting.py", "    wake_waiting_queues(tx, limit)\n", ""),
    ),
    mutation(
        "parked-for-ever", "Released capacity goes to a key that waits", "limits.declared",
        ("limits/waiting.py", "        if n > 0:\n", "        if False:\n"),
    ),
    mutation(
        "capacity-lies-idle", "Capacity that one lane cannot use goes to the next lane", "limits.declared",
        ("jobs/claim/keyed.py", "            if name != parked_on and not", "            if False and not"),
    ),
    mutation(
        "full-lanes-hide-others", "Lanes with capacity are found behind any number of full lanes", "limits.declared",
        ("jobs/claim/wants.py",
         "self.more = self.more or any(source.looked >= PATIENCE for source in sources)",
         "self.more = False"),
    ),
    mutation(
        "new-priority-not-found", "A claim finds a job whose priority was changed", "limits.declared",
        ("jobs/actions.py", "    if is_ready:\n", "    if False:\n"),
    ),
    mutation(
        "keys-by-priority-only", "Age counts between the keys of a limit", "limits.declared",
        ("jobs/claim/keyed.py", "order_key(self.seq, -self.rank)", "order_key(self.seq, -self.rank << 20)"),
    ),
    mutation(
        "keyed-jobs-ahead", "A job with a keyed limit is not claimed ahead of a free slot", "limits.plentiful",
        ("jobs/claim/keyed.py", "if self._ahead and (lane.buckets or self._limits.names):", "if False:"),
    ),
    mutation(
        "last-places-ahead", "Jobs claimed ahead leave their limits plentiful", "limits.plentiful",
        ("jobs/claim/picker.py", "each.headroom() if self._ahead else each.available()", "each.available()"),
        ("jobs/claim/picker.py", "self.available(costs) > 0 if self._ahead else", ""),
    ),
    mutation(
        "passed-over-in-silence", "The reply says that jobs need a free slot", "limits.plentiful",
        ("jobs/claim/picker.py", "self._ahead and self._limits.fit_now(head.costs)", "False"),
    ),
    mutation(
        "blocked-jobs-passed-over", "A job without capacity does not need a free slot", "limits.plentiful",
        ("jobs/claim/picker.py", "self._ahead and self._limits.fit_now(head.costs)", "self._ahead"),
    ),
    mutation(
        "starts-unwritten", "A rate counts over turns and workers", "limits.rates",
        ("jobs/claim/wants.py", "        capacities.write()\n", "        pass\n"),
    ),
    mutation(
        "window-too-short", "No window has more starts than the rate allows", "limits.rates",
        ("limits/rates.py",
         "self._window_start = tx.now - limit.per\n",
         "self._window_start = tx.now - limit.per // 2\n"),
    ),
    mutation(
        "start-moved-back", "Starts that share a row count from the last of them on", "limits.rates",
        ("limits/rates.py", "max(newest[1], tx.now), n + newest[2]", "newest[1], n + newest[2]"),
    ),
    mutation(
        "cost-ignored", "A rate counts the cost of each start", "limits.rates",
        ("lanes.py", "max(costs.get(each.name, 0), each.cost)", "1"),
    ),
    mutation(
        "costs-added", "A bucket that is named twice counts once, with the highest cost", "limits.rates",
        ("lanes.py", "max(costs.get(each.name, 0), each.cost)", "costs.get(each.name, 0) + each.cost"),
    ),
    mutation(
        "expensive-job-stuck", "A cost above the size counts as the whole size", "limits.rates",
        ("limits/rates.py", "min(max(cost, 1), self.size) <= self.available()", "cost <= self.available()"),
    ),
    mutation(
        "spent-ignored", "The real cost of an attempt counts", "limits.rates",
        ("limits/rates.py", "        more = real - min(cost, self.size)\n", "        more = 0\n"),
    ),
    mutation(
        "slow-ignored", "A blocked rate lets nothing start", "limits.rates",
        ("limits/rates.py", "if self._blocked_until <= self._tx.now else 0", "if True else 0"),
    ),
    mutation(
        "slow-shortened", "A later and shorter block does not shorten a block", "limits.rates",
        ("sql/limits.sql",
         "blocked_until = max(blocked_until, excluded.blocked_until)",
         "blocked_until = excluded.blocked_until"),
    ),
    mutation(
        "smooth-without-burst", "A smooth rate allows its burst after quiet time", "limits.rates",
        ("limits/rates.py", "SmoothRate(limit.size, limit.per, limit.burst)", "SmoothRate(limit.size, limit.per, 1)"),
    ),
    mutation(
        "smooth-saves-up", "Quiet time gives a smooth rate no more than its burst", "limits.rates",
        ("../shared/rates.py", "return max(tat, now) + n * self.time(", "return tat + n * self.time("),
    ),
    mutation(
        "recheck-not-returned", "A promotion returns when a lane that waits for a rate can start", "limits.rates",
        ("jobs/promote.py", "(next_due, _open_lanes(tx), flow_work)", "(next_due, flow_work)"),
    ),
    mutation(
        "holder-never-expires", "An expired holder holds nothing", "limits.declared",
        ("sql/limits.sql", "where bucket = ?1 and until > ?2", "where bucket = ?1 and ?2"),
    ),
    mutation(
        "renewal-starts-again", "A renewal counts no start", "limits.declared",
        ("holders.py", 'tx.all("renew_holder", (tx.now + request.ttl, request.holder, tx.now))', "()"),
    ),
    mutation(
        "holder-takes-a-part", "A holder gets all of its buckets or none", "limits.declared",
        ("holders.py", "    if full:\n", "    if len(full) == len(costs):\n"),
    ),
    mutation(
        "fencing-token-repeated", "The fencing tokens of a bucket grow whatever the clock does", "limits.holders",
        ("holders.py", "last[0] + 1)", "0)"),
    ),
    mutation(
        "fencing-token-renewed", "A renewal repeats its fencing token", "limits.holders",
        ("holders.py", "until=until, token=token)\n    tx.run", "until=until, token=token + 1)\n    tx.run"),
    ),
    mutation(
        "late-renewal-takes", "A renewal without buckets takes nothing for an expired holder", "limits.holders",
        ("holders.py", "    if not request.buckets:\n", "    if False:\n"),
    ),
    mutation(
        "hold-made-shorter", "A renewal never makes a hold shorter", "limits.holders",
        ("sql/holders.sql", "max(until, ?)", "?"),
    ),
    mutation(
        "expired-holder-listed", "An expired holder is not listed", "limits.holders",
        ("sql/holders.sql",
         "where bucket >= ? and bucket < ? and until > ?",
         "where bucket >= ? and bucket < ? and ?"),
    ),
    mutation(
        "young-token-forgotten", "A fencing token that may come again is kept", "limits.holders",
        ("sql/holders.sql", "delete from {t}fencing_tokens where token <= ?", "delete from {t}fencing_tokens where ?"),
    ),
)  # fmt: skip
