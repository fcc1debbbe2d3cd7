from mainspring.testing.contract.limits.plentiful import *  # noqa: F403  # the classes are the tests
