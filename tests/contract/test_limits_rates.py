from mainspring.testing.contract.limits.rates import *  # noqa: F403  # the classes are the tests
