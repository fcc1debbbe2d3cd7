from mainspring.testing.contract.breakers.by_hand import *  # noqa: F403  # the classes are the tests
