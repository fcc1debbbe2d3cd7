from mainspring.testing.contract.queues.depth import *  # noqa: F403  # the classes are the tests
