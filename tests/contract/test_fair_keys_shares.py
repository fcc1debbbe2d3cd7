from mainspring.testing.contract.fair_keys.shares import *  # noqa: F403  # the classes are the tests
