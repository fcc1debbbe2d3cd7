from mainspring.testing.contract.unique_keys.replace_races import *  # noqa: F403  # the classes are the tests
