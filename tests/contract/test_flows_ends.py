from mainspring.testing.contract.flows.ends import *  # noqa: F403  # the classes are the tests
