from mainspring.testing.contract.flows.joins import *  # noqa: F403  # the classes are the tests
