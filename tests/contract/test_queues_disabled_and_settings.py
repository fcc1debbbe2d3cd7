from mainspring.testing.contract.queues.disabled_and_settings import *  # noqa: F403  # the classes are the tests
