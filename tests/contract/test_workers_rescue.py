from mainspring.testing.contract.workers.rescue import *  # noqa: F403  # the classes are the tests
