from mainspring.testing.contract.limits.handed_back import *  # noqa: F403  # the classes are the tests
