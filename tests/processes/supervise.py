"""``python -m tests.processes.supervise TARGET PROCESSES OPTIONS``: a supervisor, as the command line runs it."""

from __future__ import annotations

import logging
import os
import sys

from mainspring.worker.process_tree import python_command
from mainspring.worker.supervise.child import start_early
from mainspring.worker.supervise.supervisor import Supervisor

if __name__ == "__main__":
    target, processes, options = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s")
    command = python_command("-m", "mainspring.launch.child", "--target", target, "--options", options)
    started = start_early(command, int(processes), os.environ)
    sys.exit(Supervisor(command, int(processes), started=started).run())
