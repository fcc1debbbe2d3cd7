"""Each fault of the proxy, seen from both ends of the wire; then real stores by way of it."""

from __future__ import annotations

import gc
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mainspring import Mainspring
from mainspring.errors import BadUrl, StoreUnavailable
from mainspring.stores.connect import connect
from mainspring.testing import chaos
from mainspring.testing.chaos._address import Endpoint, by_way_of, target_of

LIMIT = 30.0
MOMENT = 0.15
"""How long we look at something that must not happen."""


class Echo(socketserver.ThreadingTCPServer):
    """Answers each line with ``re:`` before it, and remembers what it was asked."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[bytes] = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.server_address[1]}/0"


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        try:
            for line in self.rfile:
                self.server.asked.append(line.strip())
                self.wfile.write(b"re:" + line)
        except ConnectionError:
            return


class Client:
    """One connection; ``ask`` waits for the answer."""

    def __init__(self, wire: chaos.Proxy) -> None:
        _, _, port = wire.url.rpartition("/")[0].rpartition(":")
        self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=LIMIT)

    def say(self, line: bytes) -> None:
        self.socket.sendall(line + b"\n")

    def hear(self) -> bytes:
        """What comes next; empty when the connection was closed."""
        return self.socket.recv(65536)

    def ask(self, line: bytes) -> bytes:
        self.say(line)
        return self.hear()

    def hears_nothing(self) -> bool:
        """For a moment."""
        self.socket.settimeout(MOMENT)
        try:
            return self.socket.recv(65536) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(LIMIT)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def wire(echo: Echo) -> Iterator[chaos.Proxy]:
    with chaos.Proxy(echo.url, words=(b"beat", b"turn")) as wire:
        yield wire


@pytest.fixture
def join(wire: chaos.Proxy) -> Iterator[Callable[[], Client]]:
    made: list[Client] = []

    def client() -> Client:
        made.append(Client(wire))
        return made[-1]

    yield client
    for each in made:
        each.socket.close()


Join = Callable[[], Client]


def until(ask: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not ask():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_proxy_without_a_fault_passes_everything(wire: chaos.Proxy, join: Join) -> None:
    client = join()
    assert client.ask(b"hello") == b"re:hello\n"
    large = b"x" * 1_000_000
    client.say(large)
    heard = b""
    while len(heard) < len(large) + 4:
        heard += client.hear()
    assert heard == b"re:" + large + b"\n"


def test_delay_holds_each_request(wire: chaos.Proxy, join: Join) -> None:
    client = join()
    client.ask(b"hello")
    wire.set(chaos.Delay(0.3))
    began = time.monotonic()
    assert client.ask(b"late") == b"re:late\n"
    assert time.monotonic() - began >= 0.3


def test_healing_ends_a_delay_at_once(wire: chaos.Proxy, join: Join) -> None:
    client = join()
    wire.set(chaos.Delay(600))
    client.say(b"late")
    assert client.hears_nothing()
    wire.heal()
    assert client.hear() == b"re:late\n"


def test_throttle_bounds_the_rate_and_loses_nothing(wire: chaos.Proxy, join: Join, echo: Echo) -> None:
    client = join()
    wire.set(chaos.Throttle(2000))
    began = time.monotonic()
    client.say(b"x" * 1000)
    heard = b""
    while len(heard) < 1004:
        heard += client.hear()
    assert time.monotonic() - began >= 0.5
    assert heard == b"re:" + b"x" * 1000 + b"\n"
    client.say(b"y" * 10_000)
    wire.heal()
    heard = b""
    while len(heard) < 10_004:
        heard += client.hear()
    assert heard == b"re:" + b"y" * 10_000 + b"\n"


def test_a_stall_holds_everything_back_and_loses_nothing(wire: chaos.Proxy, join: Join, echo: Echo) -> None:
    old = join()
    old.ask(b"hello")
    wire.set(chaos.Stall())
    new = join()
    old.say(b"one")
    new.say(b"two")
    assert old.hears_nothing()
    assert new.hears_nothing()
    assert echo.asked == [b"hello"]
    wire.heal()
    assert (old.hear(), new.hear()) == (b"re:one\n", b"re:two\n")


def test_a_stall_of_one_side_passes_requests_and_holds_replies(wire: chaos.Proxy, join: Join, echo: Echo) -> None:
    client = join()
    wire.set(chaos.Stall("reply"))
    client.say(b"one")
    until(lambda: echo.asked == [b"one"])
    assert client.hears_nothing()
    wire.heal()
    assert client.hear() == b"re:one\n"


@pytest.mark.parametrize(("side", "heard", "asked"), [("reply", b"re:he", b"hello"), ("request", b"", b"hello")])
def test_cut_ends_the_connection_after_the_given_bytes(
    wire: chaos.Proxy, join: Join, echo: Echo, side: chaos.Side, heard: bytes, asked: bytes
) -> None:
    client = join()
    client.ask(b"before")
    wire.set(chaos.Cut(after=5, side=side))
    client.say(b"hello")
    got = b""
    while more := client.hear():
        got += more
    assert got == heard
    until(lambda: echo.asked == [b"before", asked])
    fresh = join()
    wire.heal()
    assert fresh.ask(b"again") == b"re:again\n"


def test_cut_can_end_the_connection_at_once(wire: chaos.Proxy, join: Join) -> None:
    client = join()
    client.ask(b"hello")
    wire.set(chaos.Cut())
    assert client.hear() == b""
    assert join().hear() == b""
    wire.heal()
    assert join().ask(b"hello") == b"re:hello\n"


def test_reset_closes_the_connection_with_rst(wire: chaos.Proxy, join: Join) -> None:
    client = join()
    client.ask(b"hello")
    with wire.suffering(chaos.Reset()):
        with pytest.raises(ConnectionResetError):
            client.hear()
        with pytest.raises(ConnectionResetError):
            join().hear()
    assert join().ask(b"hello") == b"re:hello\n"


def test_half_open_drops_all_data_until_a_new_connection(wire: chaos.Proxy, join: Join, echo: Echo) -> None:
    client = join()
    client.ask(b"hello")
    wire.set(chaos.HalfOpen())
    client.say(b"lost")
    assert client.hears_nothing()
    wire.heal()
    assert join().ask(b"again") == b"re:again\n"
    client.say(b"lost too")
    assert client.hears_nothing()
    assert echo.asked == [b"hello", b"again"]


def test_drop_reply_drops_the_reply_of_a_request_that_arrived(wire: chaos.Proxy, join: Join, echo: Echo) -> None:
    client, other = join(), join()
    drop = wire.set(chaos.DropReply(to=b"ack"))
    assert client.ask(b"beat") == b"re:beat\n"
    assert client.ask(b"the ack") == b""
    assert drop.dropped == 1
    assert echo.asked == [b"beat", b"the ack"]
    assert other.ask(b"the ack again") == b"re:the ack again\n"


def test_a_fault_can_hit_one_connection_alone(wire: chaos.Proxy, join: Join) -> None:
    """The connection is chosen by the bytes it sent."""
    one, two = join(), join()
    one.ask(b"my beat")
    one.ask(b"more")
    two.ask(b"tu")
    two.ask(b"a turn")
    (turning,) = [link for link in wire.links if b"turn" in link.said]
    wire.set(chaos.Stall(), turning)
    two.say(b"stuck")
    assert one.ask(b"still here") == b"re:still here\n"
    assert join().ask(b"new") == b"re:new\n"
    assert two.hears_nothing()
    wire.heal()
    assert two.hear() == b"re:stuck\n"


def test_an_unreachable_server_resets_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
    with chaos.Proxy(url) as wire, pytest.raises(ConnectionResetError), Client(wire).socket as end:
        end.recv(1)  # or as early as in connecting


def test_closing_ends_stalled_connections_too(echo: Echo) -> None:
    with chaos.Proxy(echo.url) as wire:
        client = Client(wire)
        wire.set(chaos.Stall())
        client.say(b"x")
        assert client.hears_nothing()
    with pytest.raises(ConnectionResetError):
        client.hear()
    client.socket.close()


def test_closing_leaves_no_socket_open_while_clients_still_connect(echo: Echo) -> None:
    """A socket that the garbage collector closes is a warning, and so a failure."""
    for _ in range(20):
        came: list[socket.socket] = []
        with chaos.Proxy(echo.url) as wire:
            address = ("127.0.0.1", int(wire.url.rpartition("/")[0].rpartition(":")[2]))
            came += [socket.create_connection(address, timeout=LIMIT) for _ in range(5)]
        for each in came:
            each.close()
        gc.collect()


@pytest.mark.parametrize(
    ("url", "target", "moved"),
    [
        ("redis://:pw@h:7/3", Endpoint("h", 7), "redis://:pw@127.0.0.1:9/3"),
        ("valkey://h/3", Endpoint("h", 6379), "valkey://127.0.0.1:9/3"),
        ("unix:///run/x.sock?db=4", Endpoint("", 0, "/run/x.sock"), "redis://127.0.0.1:9/4"),
        ("postgresql://u:p@h/d", Endpoint("h", 5432), "postgresql://u:p@127.0.0.1:9/d"),
        (
            "postgresql://u@/d?host=/tmp/s&port=99&application_name=x",
            Endpoint("", 0, "/tmp/s/.s.PGSQL.99"),
            "postgresql://u@127.0.0.1:9/d?application_name=x",
        ),
    ],
)
def test_url_points_to_the_proxy(url: str, target: Endpoint, moved: str) -> None:
    assert target_of(url) == target
    assert by_way_of(url, 9) == moved


@pytest.mark.parametrize(
    "url", ["sqlite:///x.db", "rediss://h/0", "postgresql://h/d?sslmode=verify-full", "postgresql://a,b/d"]
)
def test_urls_without_a_network_are_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        chaos.Proxy(url)


@pytest.mark.stores("postgres", "redis")
async def test_a_real_store_through_the_proxy(store_url: str) -> None:
    """It works. A stalled store is unavailable within our own deadline, and works again afterwards."""
    with chaos.Proxy(store_url) as wire:
        app = Mainspring(wire.url)
        await app.aopen()
        store = connect(wire.url, deadline=1.0)
        await store.open()
        await store.workers()
        wire.set(chaos.Stall())
        with pytest.raises(StoreUnavailable):
            await store.workers()
        wire.heal()
        await store.workers()
        await store.close()
        await app.aclose()
