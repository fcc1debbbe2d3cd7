from mainspring.testing.contract.relaning import *  # noqa: F403  # the classes are the tests
