from mainspring.testing.contract.queues.order_and_limits import *  # noqa: F403  # the classes are the tests
