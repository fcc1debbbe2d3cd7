from mainspring.testing.contract.fair import *  # noqa: F403  # the classes are the tests
