"""The nursery: imports everything, then forks whenever it is told to."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from typing import Any

from mainspring.common import failpoints
from tests import nursery
from tests.nursery import SIZE

MODULES = (
    "mainspring.app", "mainspring.cli", "mainspring.launch.embedded", "mainspring.launch.run",
    "mainspring.worker.supervise.heartbeat_process",
    "mainspring.worker.supervise.supervisor", "mainspring.worker.worker", "mainspring.worker.supervise.shutdown",
    "mainspring.worker.lease.heartbeat_thread",
    "mainspring.stores.sqlite", "mainspring.stores.postgres", "mainspring.stores.redis",
)  # fmt: skip
PARENTS = ("-m tests.processes.supervise ", "-m tests.processes.failing ", "-m mainspring worker ")
"""Programs whose own programs come out of a nursery too."""
FAR = 600
"""Numbers from here on are free: files wait there until they have the number that they are known by."""


def next_order(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What to do, and the files that came with it."""
    head, fds, _, _ = socket.recv_fds(line, SIZE.size, 100)
    if not head:
        os._exit(0)  # whoever gave orders is gone
    (size,) = SIZE.unpack(head)
    return json.loads(line.recv(size, socket.MSG_WAITALL)), fds


def fork(line: socket.socket, parent: int) -> bool:
    """Fork twice, so that the grandchild belongs to ``parent``. Whether this is the grandchild."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while (now := os.getppid()) == between:
        time.sleep(0.0005)
    if now != parent:
        os._exit(1)  # it has ended meanwhile, and somebody else got us
    line.sendall(SIZE.pack(os.getpid()))
    line.close()
    return True


def become(order: dict[str, Any], fds: list[int]) -> None:
    """This process is now as if it had been started."""
    if order["new_session"]:
        os.setsid()
    os.chdir(order["cwd"])
    far = [fcntl.fcntl(fd, fcntl.F_DUPFD, FAR) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(far, order["files"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = os.fdopen(number, old.mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.environ.clear()
    os.environ.update(order["env"])
    failpoints.disarm()
    failpoints.arm(os.environ.get("MAINSPRING_FAILPOINT", ""))


def run(command: list[str]) -> None:
    """As ``python -m`` and ``python -c`` do."""
    how, what, *rest = command[1:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if how == "-m":
        sys.argv = [what, *rest]
        sys.path[0] = os.getcwd()  # noqa: PTH109  # a string
        sys.modules.pop(what, None)
        runpy._run_module_as_main(what)  # type: ignore[attr-defined]
    else:
        sys.argv = ["-c", *rest]
        sys.path[0] = ""
        main.__dict__["__builtins__"] = __builtins__
        exec(compile(what, "<string>", "exec"), main.__dict__)  # that is what -c is for


def wait_for_orders(line: socket.socket) -> None:
    """Only the processes that do something come farther than this, and do it."""
    while True:
        order, fds = next_order(line)
        if fork(line, order["parent"]):
            break
        for fd in fds:
            os.close(fd)
    become(order, fds)
    if " ".join([*order["command"][1:], ""]).startswith(PARENTS):
        nest()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end(code_of(order["command"]))


def nest() -> None:
    """This program will start others: it gets a nursery of its own, while nothing else is going on in it."""
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wait_for_orders(theirs)
    theirs.close()
    made = nursery.Nursery(ours)
    nursery.nursery = lambda: made  # type: ignore[assignment]
    subprocess.Popen = nursery.Nursed  # type: ignore[misc]


def code_of(command: list[str]) -> int:
    """Run it; how it ends."""
    try:
        run(command)
    except SystemExit as error:
        if isinstance(error.code, int | None):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001  # nobody else is there to tell of it
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(code: int) -> None:
    """As an interpreter ends, but for its modules: to take them down would copy all that is shared with the nursery."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted test run ends it through the line
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    wait_for_orders(socket.socket(fileno=int(sys.argv[1])))
