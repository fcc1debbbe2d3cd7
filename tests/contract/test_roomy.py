from mainspring.testing.contract.roomy import *  # noqa: F403  # the classes are the tests
