from mainspring.testing.contract.parts_in_queues import *  # noqa: F403  # the classes are the tests
