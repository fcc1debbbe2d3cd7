from mainspring.testing.contract.unique_keys.kept_keys import *  # noqa: F403  # the classes are the tests
