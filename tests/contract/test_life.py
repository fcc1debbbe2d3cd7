from mainspring.testing.contract.life import *  # noqa: F403  # the classes are the tests
