from mainspring.testing.contract.dependencies.with_queues_and_keys import *  # noqa: F403  # the classes are the tests
