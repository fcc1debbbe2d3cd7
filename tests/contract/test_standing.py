from mainspring.testing.contract.standing import *  # noqa: F403  # the classes are the tests
