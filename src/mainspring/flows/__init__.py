"""Flows: jobs that depend on each other, enqueued as one.

What users write is an expression: a call (``task.s(1)``), a chain (``a.s(1) | b``), a group of expressions, a ``Dag``.
Nothing happens before ``.enqueue()``. Then ``plan.py`` turns the expression into jobs:

- a call becomes one job, with an edge from each job that it waits for;
- a group becomes one job for each member, and a *join*, which ends when all members have ended;
- the whole flow gets a *root*, a join that ends with the last job of the expression. Its id is the id of the flow.

A *join* is a blocked job that no worker runs. The store ends it in the step in which its last member ends (see
``stores/base.py``, Flows). So a join is found, waited for, cancelled and pruned like any job, and nothing but the store
decides that it fires, once. The ids of all jobs follow from the id of the flow, so a producer that repeats an enqueue
makes no second job, and the ids of the members of a group need not be stored.

*Results* are stored once, with the job that returned them. The record of a job says which arguments are results of
other jobs, and the worker reads them before it runs the job (``worker/run/flows/inputs.py``).

*Ends.* A job whose parent ended badly is cancelled, unless its edge has another policy; so failure travels down to the
root. Cancelling the root cancels all jobs of the flow; a finished flow is deleted as a whole. Both happen in slices.

What a flow does not do: it does not run its jobs in one transaction, and it does not undo anything by itself: see
``Flow.undo``. The page for users is ``docs/guides/flows.md``, the page for maintainers ``docs/internals/flows.md``.
"""
