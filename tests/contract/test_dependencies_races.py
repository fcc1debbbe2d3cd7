from mainspring.testing.contract.dependencies.races import *  # noqa: F403  # the classes are the tests
