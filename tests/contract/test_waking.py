from mainspring.testing.contract.waking import *  # noqa: F403  # the classes are the tests
