"""Faults against joins, policies of edges, and the ends and retries of flows."""

from __future__ import annotations

from .mutation import Mutation, mutation

FLOWS: tuple[Mutation, ...] = (
    mutation(
        "open-join-ends",
        "An open join does not end with its last member",
        "flows.joins",
        ("sql/flows.sql", " and j.deps = 0 and g.open = 0", " and j.deps = 0"),
    ),
    mutation(
        "closing-ends-nothing",
        "A join whose members have ended ends when it is closed",
        "flows.joins",
        ("flows.py", "        settle_join(tx, join)\n", "        pass\n"),
    ),
    mutation(
        "empty-join-waits",
        "A join without members ends when it is inserted",
        "flows.joins",
        ("jobs/enqueue.py", "                settle_join(self._tx, job)\n", "                pass\n"),
    ),
    mutation(
        "bad-member-forgiven",
        "A strict join ends badly if a member ended badly",
        "flows.joins",
        ("sql/flows.sql", "g.lenient = 0 and (g.dead > 0 or g.cancelled > 0)", "0"),
    ),
    mutation(
        "lenient-join-fails",
        "A lenient join succeeds however its members end",
        "flows.joins",
        ("sql/flows.sql", "g.lenient = 0 and (", "("),
    ),
    mutation(
        "inner-death-forgotten",
        "A bad inner join counts as dead if a member of it is dead",
        "flows.joins",
        (
            "jobs/finish.py",
            "return EndedParent(join, state, reason, bool(died), is_join=True)",
            "return EndedParent(join, state, reason, is_join=True)",
        ),
    ),
    mutation(
        "children-of-bulk-forgotten",
        "Successes in bulk resolve their children",
        "flows.joins",
        ("jobs/ack.py", "return [id for id, flags, _ in rows if flags & FLAG_HAS_CHILDREN]", "return []"),
    ),
    mutation(
        "closed-join-accepts",
        "Nobody but a running job adds members to a closed join",
        "flows.joins",
        ("jobs/enqueue.py", "return not flags & FLAG_JOIN or bool(is_open)", "return True"),
    ),
    mutation(
        "ended-join-accepts",
        "A join that has ended takes no members",
        "flows.joins",
        ("jobs/enqueue.py", "                elif must_wait:\n", "                elif False:\n"),
    ),
    mutation(
        "new-members-not-waited-for",
        "A join waits for members that are added",
        "flows.joins",
        ("jobs/enqueue.py", 'self._tx.run("wait_for_more", (n, child))', "pass"),
    ),
    mutation(
        "joins-are-deep",
        "A join does not count for the depth of its queue",
        "flows.joins",
        ("jobs/enqueue.py", " and job.join is None:\n        tx.run", ":\n        tx.run"),
    ),
    mutation(
        "join-retried-by-hand",
        "A retry by hand does not apply to a join",
        "flows.joins",
        ("jobs/actions.py", " or (action is Action.RETRY and is_join(tx, job)):", ":"),
    ),
    mutation(
        "children-of-large-joins-stuck",
        "A promotion releases the other children of a large join",
        "flows.joins",
        (
            "jobs/finish.py",
            '        tx.run("release_children", (parent.id, parent.state, parent.reason, parent.died))\n',
            "        pass\n",
        ),
    ),
    mutation(
        "policy-skip",
        "A bad end bypasses a child with the policy skip",
        "flows.policies",
        (
            "jobs/finish.py",
            "            return cls.BYPASS\n        return cls.KEEP",
            "            return cls.CANCEL\n        return cls.KEEP",
        ),
    ),
    mutation(
        "policy-wait",
        "A dead parent keeps a child with the policy wait waiting",
        "flows.policies",
        ("jobs/finish.py", "cls.KEEP if policy", "cls.CANCEL if policy"),
    ),
    mutation(
        "waiting-child-forgotten",
        "The retry of a dead parent finds the child that waits for it",
        "flows.policies",
        ("jobs/actions.py", '(FLAG_HAS_CHILDREN if tx.all("has_children", (job,)) else 0)', "0"),
    ),
    mutation(
        "pruned-parent-waited-for",
        "No child waits for a dead parent that is deleted or pruned",
        "flows.policies",
        ("jobs/actions.py", "        resolve(tx, [EndedParent(job, State.CANCELLED)])\n", "        pass\n"),
    ),
    mutation(
        "first-death-unnoticed",
        "The first dead member frees a child with the policy dead",
        "flows.policies",
        ("jobs/finish.py", "and has_first_death and", "and False and"),
    ),
    mutation(
        "flow-outlives-its-root",
        "The jobs of a flow end with a cancelled root",
        "flows.ends",
        ("jobs/finish.py", "    sweep_flow(tx, join, deleted=False)\n", ""),
    ),
    mutation(
        "flow-outlives-a-deleted-root",
        "The jobs of a flow are deleted with the root",
        "flows.ends",
        ("jobs/actions.py", "        sweep_flow(tx, job, deleted=True)\n", "        pass\n"),
    ),
    mutation(
        "running-members-forgotten",
        "Running jobs of a deleted flow are deleted when they end",
        "flows.ends",
        (
            "jobs/promote.py",
            '    elif deleted and tx.all("flow_has_jobs", (flow_mark(root), root)):',
            "    elif False:",
        ),
    ),
    mutation(
        "dead-members-pruned",
        "Dead jobs of an open flow are kept",
        "flows.ends",
        ("sql/prune.sql", "    and keep is not {FLOW_KEEP}\n", ""),
    ),
    mutation(
        "live-flow-pruned",
        "The root of a flow stays while a job of the flow is live",
        "flows.ends",
        ("sql/prune.sql", "g.pruning = 0 and exists (", "g.pruning = 2 and exists (", 2),
        ("jobs/prune.py", 'return not tx.all("flow_has_jobs", (flow_mark(root), root))', "return True"),
    ),
    mutation(
        "members-outlive-the-root",
        "A flow is pruned as a whole",
        "flows.ends",
        ("jobs/prune.py", "found += _find_flow(tx, job, limit - len(found)) if is_join else ()", "pass"),
    ),
    mutation(
        "bad-members-remembered",
        "A retried join forgets the members that ended badly",
        "flows.retries",
        ("sql/flows.sql", "total = succeeded + bypassed, dead = 0, cancelled = 0", "total = total"),
    ),
    mutation(
        "succeeded-jobs-retried",
        "The retry of a flow leaves jobs alone that succeeded",
        "flows.retries",
        ("flows.py", "sources(Action.RETRY_FLOW)", "sources(Action.RETRY)", 2),
    ),
    mutation(
        "bypassed-members-cancelled",
        "A bypassed member is counted as such",
        "flows.policies",
        (
            "jobs/finish.py",
            'return "bypassed" if self.reason is Reason.BYPASSED else "succeeded"',
            'return "succeeded"',
        ),
    ),
    mutation(
        "death-callback-always",
        "A callback for deaths is bypassed if no member died",
        "flows.policies",
        ("jobs/finish.py", "return cls.RELEASE if parent.died else cls.BYPASS", "return cls.RELEASE"),
    ),
    mutation(
        "late-death-callback-waits",
        "A callback that is added after the first death is ready at once",
        "flows.policies",
        (
            "jobs/enqueue.py",
            'Verdict.RELEASE if edge.policy == "dead" and parent.died else Verdict.KEEP',
            "Verdict.KEEP",
        ),
    ),
    mutation(
        "ended-parent-forgiven",
        "A parent that ended badly before the enqueue ends the child",
        "flows.policies",
        (
            "jobs/enqueue.py",
            "self.ended[job.id] = Reason.PARENT if Reason.PARENT in (reason, self.ended.get(job.id)) else reason",
            "pass",
        ),
    ),
    mutation(
        "first-death-each-time",
        "Only the first death of a member is reported",
        "flows.joins flows.policies flows.ends flows.retries",
        ("sql/flows.sql", "returning dead > 0 and dead = :dead", "returning 0"),
    ),
    mutation(
        "failed-join-accepts",
        "A join that a parent has ended takes no members, and its flow ends with it",
        "flows.ends",
        (
            "jobs/finish.py",
            "    if child.flags & FLAG_JOIN:\n        _leave_flow(tx, child.child)\n",
            "",
        ),
    ),
    mutation(
        "one-walk-of-a-cancelled-flow",
        "A cancelled flow is walked until nothing is left",
        "flows.ends",
        ("jobs/promote.py", "    elif has_changed:\n", "    elif False:\n"),
    ),
    mutation(
        "retried-flow-is-swept",
        "The retry of a flow stops the work on its end",
        "flows.retries",
        ("flows.py", '("reopen_join", "all_released", "end_sweep")', '("reopen_join", "all_released")'),
    ),
    mutation(
        "edges-of-ended-children-stay",
        "The end of a job deletes its edges to parents",
        "flows.retries",
        ("jobs/finish.py", '    tx.run("drop_edges_of_child", (child.child,))\n', ""),
    ),
)
