from mainspring.testing.contract.pruning import *  # noqa: F403  # the classes are the tests
