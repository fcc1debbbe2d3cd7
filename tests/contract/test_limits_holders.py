from mainspring.testing.contract.limits.holders import *  # noqa: F403  # the classes are the tests
