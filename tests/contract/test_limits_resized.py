from mainspring.testing.contract.limits.resized import *  # noqa: F403  # the classes are the tests
