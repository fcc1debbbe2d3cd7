from mainspring.testing.contract.resized import *  # noqa: F403  # the classes are the tests
