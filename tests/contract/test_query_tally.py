from mainspring.testing.contract.query.tally import *  # noqa: F403  # the classes are the tests
