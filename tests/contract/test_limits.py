from mainspring.testing.contract.limits import *  # noqa: F403  # the classes are the tests
