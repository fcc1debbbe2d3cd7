from mainspring.testing.contract.unique_keys.debounce_and_throttle import *  # noqa: F403  # the classes are the tests
