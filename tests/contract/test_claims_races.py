from mainspring.testing.contract.claims.races import *  # noqa: F403  # the classes are the tests
