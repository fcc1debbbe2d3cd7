from mainspring.testing.contract.dependencies.handed_back import *  # noqa: F403  # the classes are the tests
