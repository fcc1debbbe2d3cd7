from mainspring.testing.contract.follows import *  # noqa: F403  # the classes are the tests
