from mainspring.testing.contract.flows.retries import *  # noqa: F403  # the classes are the tests
