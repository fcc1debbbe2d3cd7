from mainspring.testing.contract.workers.crashes import *  # noqa: F403  # the classes are the tests
