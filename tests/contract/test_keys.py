from mainspring.testing.contract.keys import *  # noqa: F403  # the classes are the tests
