from mainspring.testing.contract.workers.leads import *  # noqa: F403  # the classes are the tests
