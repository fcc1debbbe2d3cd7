"""``python -m mainspring.testing.servers``: end the servers that crashed test runs left behind."""

from mainspring.testing.servers import sweep

if __name__ == "__main__":
    sweep()
