from mainspring.testing.contract.fair_keys.lanes import *  # noqa: F403  # the classes are the tests
