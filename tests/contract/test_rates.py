from mainspring.testing.contract.rates import *  # noqa: F403  # the classes are the tests
