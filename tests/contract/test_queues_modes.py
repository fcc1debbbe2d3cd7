from mainspring.testing.contract.queues.modes import *  # noqa: F403  # the classes are the tests
