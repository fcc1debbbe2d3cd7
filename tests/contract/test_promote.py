from mainspring.testing.contract.promote import *  # noqa: F403  # the classes are the tests
