from mainspring.testing.contract.limits.declared import *  # noqa: F403  # the classes are the tests
