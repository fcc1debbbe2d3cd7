from mainspring.testing.contract.flows.policies import *  # noqa: F403  # the classes are the tests
