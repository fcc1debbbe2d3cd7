from mainspring.testing.contract.breakers.failures import *  # noqa: F403  # the classes are the tests
