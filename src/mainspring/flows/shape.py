"""The shape of a flow: what ``flows show`` and ``flows graph`` draw. It is stored with the root of the flow."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.common.ids import derived_id

ROOT_TASK = "mainspring.flow"
"""The task name of the root join of a flow."""
GROUP_TASK = "mainspring.group"
"""The task name of the other joins."""
EACH_TASK = "mainspring.each"
"""The built-in task that enqueues the jobs of ``flow.each(task)``, when the elements are known."""
BUILT_IN = frozenset({ROOT_TASK, GROUP_TASK, EACH_TASK})
FLOW_QUEUE = "mainspring.flows"
"""The queue of joins. No worker serves it."""
NODES_SHOWN = 2_000
"""A shape has at most this many nodes; a group of more members is one node."""


ALIKE_SHOWN = 3
"""A group of more members than this, all of the same tasks, is one node."""


class ShapeNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job of a flow, or all members of a group in one."""

    id: str
    """The id of the job or join, in hex."""
    task: str
    kind: Literal["job", "group", "each", "undo", "batch"] = "job"
    after: tuple[str, ...] = ()
    """The ids of the jobs and joins that it waits for."""
    when: str = "fail"
    group: str = ""
    """The group that it is in, if that is a node as well."""
    count: int = 0
    """For a group whose members are not nodes: how many there are."""


class FlowShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes of a flow in the order of its expression, and its last node."""

    nodes: tuple[ShapeNode, ...] = ()
    last: str = ""
    name: str = ""
    jobs: int = 0
    """How many jobs the flow had when it was enqueued, without joins."""
    start: str = ""
    """The join that holds the whole flow back while it is enqueued in pieces."""
    kind: str = ""
    """For a flow with a key: the tasks and how they are linked. Flows that differ only in arguments have one kind."""


def body_of(flow: bytes) -> bytes:
    """The id of the body join: all jobs of the flow without the compensations. Only flows with these have it."""
    return derived_id(flow, b"body")


def member_id(join: bytes, n: int) -> bytes:
    """The id of the exit of the member ``n`` of a group."""
    return derived_id(join, b"member", b"%d" % n)


def batch_joins(root: bytes) -> tuple[bytes, bytes]:
    """The joins of a batch: the one of its members, and the one that is open until the batch is closed."""
    return derived_id(root, b"set"), derived_id(root, b"hold")


encode_shape = msgspec.json.Encoder().encode
decode_shape = msgspec.json.Decoder(FlowShape).decode
