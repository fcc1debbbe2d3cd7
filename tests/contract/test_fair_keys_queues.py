from mainspring.testing.contract.fair_keys.queues import *  # noqa: F403  # the classes are the tests
