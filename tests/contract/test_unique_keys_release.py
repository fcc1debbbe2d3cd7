from mainspring.testing.contract.unique_keys.release import *  # noqa: F403  # the classes are the tests
