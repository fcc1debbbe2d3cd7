from mainspring.testing.contract.replacing import *  # noqa: F403  # the classes are the tests
