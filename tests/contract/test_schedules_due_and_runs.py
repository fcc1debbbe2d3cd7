from mainspring.testing.contract.schedules.due_and_runs import *  # noqa: F403  # the classes are the tests
