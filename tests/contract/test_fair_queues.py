from mainspring.testing.contract.fair_queues import *  # noqa: F403  # the classes are the tests
