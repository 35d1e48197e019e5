"""Clients that break the protocol, flood, stall or die: they end, everybody else is served, nothing stays behind."""
import contextlib
import errno
import os
import resource
import select
import signal
import socket
import struct
import threading
import time
import unittest

from support import harness, wire
from support.harness import count, eventually
from support.wire import RESIDENT, view

OTHER_UID = 61001
WARNING = b"warning: out of file descriptors"
LATENCY_S = 60.0  # what another client may wait at most, on a machine however busy


def as_other(action):
    """What it returns, done as another user."""
    os.seteuid(OTHER_UID)
    try:
        return action()
    finally:
        os.seteuid(0)


class Hostile(harness.DaemonTest):
    settings = {"hello_timeout": 60000, "max_jobs": 256}

    def assert_others_served(self):
        began = time.monotonic()
        self.control.ping()
        with self.daemon.connect() as c:
            a = c.import_new(64)
            c.submit(wire.add(view(a, [4]), view(a, [4]), view(a, [4])))
        self.assertLess(time.monotonic() - began, LATENCY_S)

    def ends_session(self, data, fds=(), hello=True):
        c = self.client(hello=hello)
        try:
            c.send_bytes(data, fds)
        except wire.Ended:
            pass
        self.assert_ended(c)
        c.close()

    def request(self, **body):
        return wire.encode("Request", {"id": 9, **body})

    # Datagrams

    def test_violations_end_the_session(self):
        submit = self.request(submit={"ops": [wire.add(view(1, [1]), view(1, [1]), view(1, [1]))]})
        ping = self.request(ping={})
        nested = b""
        for _ in range(2000):
            nested = wire.prefixed(5, nested)
        op = wire.encode("Op", wire.copy(view(1, [1]), view(1, [1])))
        ops65 = wire.prefixed(6, wire.prefixed(5, op) * 65)
        cases = {
            "random bytes": self.random.randbytes(100),
            "no verb": self.request(),
            "group": b"\x0b\x0c",
            "field 0": b"\x00\x00",
            "unknown field": ping + wire.field(500, 0, b"\x01"),
            "unknown nested field": self.request(drop={"buffer": 1})[:-1] + b"\x01" + b"\x78\x01",
            "singular twice": ping + wire.field(1, 0, b"\x05"),
            "oneof twice": ping + wire.encode("Request", {"stats": {}}),
            "submessage twice": wire.prefixed(4, b"") * 2,
            "nested 2000 deep": wire.prefixed(6, nested),
            "65 ops": ops65,
            "17 extents": self.request(submit={"ops": [wire.copy(view(1, [1] * 17), view(1, [1]))]}),
            "bad UTF-8": wire.field(1, 0, b"\x01") + wire.prefixed(6, wire.prefixed(3, b"\xff")),
            "NUL in text": wire.field(1, 0, b"\x01") + wire.prefixed(6, wire.prefixed(3, b"c\x00")),
            "overlong varint": b"\x08" + b"\x80" * 11 + b"\x01",
            "wrong wire type": b"\x0a\x01a",
            "length beyond the end": b"\x32\xff\xff\x03",
            "oversize": self.request(submit={"device": "x" * 17000}),
            "just oversize": wire.field(1, 0, b"\x01") + b"\x52" + b"\x00" * 16382,
        }
        self.assertEqual(len(cases["just oversize"]), 16385)
        for name, data in cases.items():
            with self.subTest(name):
                self.ends_session(data)
                self.assert_others_served()
        for cut in range(1, len(submit)):
            with self.subTest("truncated", cut=cut):
                c = self.client()
                c.send_bytes(submit[:cut])
                try:
                    self.assertLess(c.receive()["status"], 0)  # what was left happens to decode: refused
                except wire.Ended:
                    pass
                c.close()

    def test_long_messages(self):
        """They are read in several turns: what is wrong at their end, or goes meanwhile, ends that session alone."""
        wide, too_wide = (wire.copy(view(1, [1] * n, [1] * n), view(2, [1] * n, [1] * n)) for n in (16, 17))
        c = self.client()
        a = c.import_new(64)
        with self.assertRaises(wire.Refused) as refused:
            c.submit([wire.copy(view(a, [1] * 16, [1] * 16), view(a, [1] * 16, [1] * 16))] * 64)
        self.assertEqual(refused.exception.message, "op 1 of 64 (copy): a view has 16 extents, expected 1 to 4")
        c.close()
        self.ends_session(self.request(submit={"ops": [wide] * 63 + [too_wide]}))
        self.ends_session(self.request(submit={"ops": [wide] * 64}), hello=False)
        for _ in range(50):
            c = self.client()
            c.send_bytes(self.request(submit={"ops": [wide] * 64}))
            c.close()
        self.assert_others_served()

    def test_empty_datagram_is_the_end(self):
        self.ends_session(b"")

    def test_random_mutations(self):
        """A valid conversation with bytes changed: each datagram is answered or ends its session."""
        view_ = view(1, [4, 4], [4, 1])
        seeds = [self.request(submit={"ops": [wire.gemm(view_, view_, view(2, [4, 4]), 1.5, 0.5), ]}),
                 self.request(alloc={"buffer": 5, "bytes": 100, "kind": RESIDENT, "device": "cpu"}),
                 self.request(**{"import": {"buffer": 6, "bytes": 100}}), self.request(cancel={"job": 3}),
                 self.request(describe={}), self.request(stats={}), self.request(drop={"buffer": 5}),
                 self.request(list_users={"before": 9}), self.request(list_sessions={"before": 9}),
                 self.request(publish={"buffer": 1, "name": "a/b", "access": 1, "group": 7, "dtype": 1, "shape": [3]}),
                 self.request(attach={"buffer": 1, "user": 7, "name": "a/b"}), self.request(list_buffers={"before": 9}),
                 self.request(unpublish={"user": 7, "name": "a/b"}),
                 self.request(trace={"before": 9})]
        c, answered, ended = None, 0, 0
        for _ in range(count(3000, 500)):
            if c is None:
                c = self.client()
                c.import_new(64)
                c.import_new(64)
            data = bytearray(self.random.choice(seeds))
            for _ in range(self.random.randrange(1, 4)):
                data[self.random.randrange(len(data))] = self.random.randrange(256)
            try:
                c.send_bytes(bytes(data))
                for fd in c.receive()["fds"]:
                    os.close(fd)
                answered += 1
            except wire.Ended:
                ended += 1
                c.close()
                self.clients.remove(c)
                c = None
        for user, name in self.control.list_buffers():  # those that outlive their sessions
            self.control.unpublish(user, name)
        self.assertGreater(answered, count(50, 5))  # about one in eleven
        self.assertGreater(ended, count(50, 5))
        self.assert_others_served()

    # Order of greeting

    def test_requests_before_hello(self):
        for body in [{"ping": {}}, {"stats": {}}, {"alloc": {"buffer": 1, "bytes": 1}}, {"submit": {"ops": []}}]:
            self.ends_session(self.request(**body), hello=False)
        fd = wire.memfd(4096)
        self.ends_session(self.request(**{"import": {"buffer": 1, "bytes": 1}}), [fd], hello=False)
        os.close(fd)

    def test_hello_twice(self):
        self.ends_session(self.request(hello={"version_min": 1, "version_max": 1}))

    def test_never_hello(self):
        self.daemon.reload(hello_timeout=200)
        try:
            silent = [self.client(hello=False) for _ in range(50)]
            began = time.monotonic()
            for c in silent:
                self.assert_ended(c)
            self.assertGreater(time.monotonic() - began, 0.1)
            self.assert_others_served()
        finally:
            self.daemon.reload(hello_timeout=60000)

    # Descriptors

    def test_descriptors_where_none_belong(self):
        fd = wire.memfd(4096)
        for body in [{"ping": {}}, {"alloc": {"buffer": 1, "bytes": 1}}, {"submit": {"ops": []}}]:
            self.ends_session(self.request(**body), [fd])
        self.ends_session(self.request(**{"import": {"buffer": 1, "bytes": 1}}), [fd, fd])
        hello = wire.encode("Request", {"id": 1, "hello": {"version_min": 1, "version_max": 1}})
        self.ends_session(hello, [fd], hello=False)
        os.close(fd)

    def test_descriptor_floods(self):
        fd = wire.memfd(4096)
        for n in (4, 5, 64, 253):
            self.ends_session(self.request(**{"import": {"buffer": 1, "bytes": 1}}), [fd] * n)
            self.ends_session(b"\xff" * 10, [fd] * n)
        for _ in range(count(200, 50)):
            c = self.client()
            try:
                for _ in range(20):
                    c.send_bytes(b"\x00", [fd] * 100)
            except wire.Ended:
                pass
            except OSError as e:  # Linux lets users other than root have so many on their way and no more
                self.assertEqual(e.errno, errno.ETOOMANYREFS)
            c.close()
            self.clients.remove(c)
        os.close(fd)
        self.assert_others_served()

    # Slow and half-dead peers

    def test_slow_reader(self):
        """It asks thousands of things and reads nothing; then it reads, and nothing is missing."""
        c = self.client()
        a = c.import_new(4096)
        op = wire.add(view(a, [4]), view(a, [4]), view(a, [4]))
        self.assert_others_served()
        rss = self.daemon.rss_bytes()
        c.sock.setblocking(False)
        sent = []
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                sent.append(c.start_submit(op) if len(sent) % 3 else c.start("describe", {}))
            except BlockingIOError:  # the daemon has stopped reading
                time.sleep(0.01)
        self.assertGreater(len(sent), 300)
        self.assert_others_served()
        grown = self.daemon.rss_bytes() - rss
        if not harness.QUICK:
            self.assertLess(grown, 8 << 20)
        c.sock.setblocking(True)
        c.sock.settimeout(harness.PATIENCE_S)
        statuses = {wire.STATUS_NAME[c.wait_any(i)["status"]] for i in sent}
        self.assertLessEqual(statuses, {"OK", "BUSY"})
        c.submit(op)

    def test_slow_reader_of_lent_buffers(self):
        """Replies with descriptors wait too, and come with them."""
        c = self.client()
        ids, describes = [], []
        timeout = c.sock.gettimeout()
        limit = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)[0]
        most = min(400, limit // 32 - 1)  # as many as one user may leave unread
        c.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # once nothing more is read of it
            for _ in range(most):
                ids.append(c.start_alloc(8)[0])
            for _ in range(50):
                describes.append(c.start("describe", {}))
        c.sock.settimeout(timeout)
        self.assertGreater(len(ids), 100)
        time.sleep(0.2)
        self.assert_others_served()
        for i in ids:
            reply = c.wait(i)
            self.assertEqual(len(reply["fds"]), 1)
            os.close(reply["fds"][0])
        for i in describes:
            c.wait(i)

    def test_slow_reader_that_dies(self):
        for _ in range(count(20, 5)):
            c = self.client()
            c.sock.setblocking(False)
            try:
                for _ in range(3000):
                    c.start("describe", {})
                    c.start_alloc(8)
            except BlockingIOError:
                pass
            c.close()
            self.clients.remove(c)
        self.assert_others_served()

    def test_half_closed(self):
        c = self.client()
        op = self.slow_op(c, 50)
        c.start_submit(op)
        c.start_submit(op)
        c.sock.shutdown(socket.SHUT_WR)
        self.assert_ended(c)
        c = self.client()
        c.start("describe", {})
        c.sock.shutdown(socket.SHUT_RD)
        try:
            for _ in range(100):
                c.start("ping", {})
        except wire.Ended:
            pass
        self.assert_others_served()

    # Pieces left behind

    def test_drop_while_in_use(self):
        c = self.client()
        op = self.slow_op(c, 60)
        job, queued = c.start_submit(op), c.start_submit(op)
        for b in list(c.maps)[-2:]:
            c.drop(b)
        self.refused("NOT_FOUND", c.submit, op)
        c.wait(job)
        c.wait(queued)

    def test_close_with_everything_under_way(self):
        for _ in range(count(30, 5)):
            c = self.client()
            op = self.slow_op(c, 5)
            for q in range(4):
                c.start_submit(op, queue=q)
            c.start_alloc(100, RESIDENT)
            r, b = c.start_alloc(1 << 20)
            c.start_submit(wire.copy(view(b, [4]), view(b, [4], offset=64)), queue=7, deadline_us=1_000_000)
            c.start("drop", {"buffer": b})
            c.start("ping", {})
            c.close()
            self.clients.remove(c)
        self.assert_others_served()

    def test_drop_of_a_pending_alloc(self):
        other, ids = self.occupy(200)
        c = self.client()
        first, b = c.start_alloc(1 << 20, RESIDENT)
        c.drop(b)
        second, _ = c.start_alloc(1 << 20, RESIDENT, buffer=b)
        self.assertEqual(c.wait(first)["lent"]["bytes"], 1 << 20)
        c.wait(second)
        third, b = c.start_alloc(1 << 20, RESIDENT)
        c.start("drop", {"buffer": b})
        c.close()
        for i in ids:
            other.wait(i)


class Kills(harness.DaemonTest):
    """SIGKILL at any moment of a job."""

    def victim(self, seed):
        """In a child: all kinds of work, for ever."""
        rnd = harness.random.Random(seed)
        c = self.daemon.connect(name="victim")
        a, y = c.import_new(1 << 16), c.import_new(1 << 16)
        n = 64
        while True:
            lent, _ = c.start_alloc(rnd.choice([100, 1 << 17, 3 << 20])), 0
            res, r = c.start_alloc(1 << 16, RESIDENT)
            ops = [wire.copy(view(a, [1 << 14]), view(r, [1 << 14])),
                   wire.gemm(view(r, [n, n]), view(a, [n, n]), view(y, [n, n])),
                   wire.copy(view(r, [64]), view(a, [64]))]
            jobs = [c.start_submit(ops[:rnd.randrange(1, 4)], queue=q, priority=q % 3,
                                   deadline_us=rnd.choice([0, 500])) for q in range(rnd.randrange(8))]
            c.start("drop", {"buffer": r})
            if rnd.random() < 0.5:
                c.start("cancel", {"job": jobs[-1] if jobs else 1})
            if rnd.random() < 0.5:
                c.wait_any(res)
                for fd in c.wait_any(lent[0])["fds"]:
                    os.close(fd)
            c.drop(lent[1])

    def test_kills(self):
        kills = int(os.environ.get("KOPS_TEST_KILLS", count(300, 60)))
        for _ in range(kills):
            seed = self.random.randrange(1 << 30)
            pid = os.fork()
            if pid == 0:
                try:
                    self.victim(seed)
                except BaseException as e:
                    os.write(2, f"victim {seed}: {e!r}\n".encode())
                os._exit(1)
            time.sleep(self.random.random() ** 2 * 0.05)
            os.kill(pid, signal.SIGKILL)
            self.assertTrue(os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the victim ended by itself")
        self.control.ping()


class ConnectionFloods(harness.DaemonTest):
    settings = {"max_sessions": 50, "max_sessions_per_uid": 40, "hello_timeout": 60000}

    def test_sessions_at_the_limit_and_one_more(self):
        got = [self.client() for _ in range(39)]  # the control session is the 40th
        for _ in range(300):
            c = self.client(hello=False)
            self.assert_ended(c)
            c.close()
        for c in got:
            c.ping()
        got.pop().close()
        self.assertTrue(eventually(lambda: self.control.stats()["sessions"] == 39))
        self.client().ping()

    def test_silent_connections_do_not_stop_others(self):
        silent = [self.client(hello=False) for _ in range(39)]
        self.control.ping()
        for c in silent:
            c.close()
        self.assertTrue(eventually(lambda: self.control.stats()["sessions"] == 1))
        self.client().ping()

    def flood(self, seconds):
        pid = os.fork()
        if pid == 0:
            while True:
                with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                    s.connect(self.daemon.socket)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def queue_room(self):
        """For how many more connections, up to 100; kopsd stands still meanwhile."""
        self.daemon.signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED | os.WNOWAIT)
            with contextlib.ExitStack() as stack:
                for n in range(100):
                    s = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                    s.setblocking(False)
                    try:
                        s.connect(self.daemon.socket)
                    except BlockingIOError:
                        return n
            return 100
        finally:
            self.daemon.signal(signal.SIGCONT)

    def test_a_flood_of_them_makes_the_queue_short(self):
        """Whoever comes then waits for a few of the flood, not for thousands."""
        self.assertEqual(self.queue_room(), 100)

        def gets_in():
            """In its turn; sessions of the flood count until kopsd has seen their ends."""
            try:
                self.client().close()
            except (wire.Refused, wire.Ended):
                return False
            return True

        def is_short():
            self.flood(0.3)
            self.assertTrue(eventually(gets_in))  # so the queue is not just full
            return self.queue_room() <= 5
        self.assertTrue(eventually(is_short))
        self.assertTrue(eventually(gets_in))
        self.assertTrue(eventually(lambda: self.queue_room() == 100, step=0.5))


@unittest.skipIf(harness.QUICK, "figures of time")
class Closing(harness.DaemonTest):
    """What closing a client's descriptor takes is not taken from everybody."""

    settings = {"max_sessions_per_uid": 1, "max_mapped_per_uid": "1G"}

    def refuse(self, n, datagrams):
        """Connections beyond the limit that have sent so many empty datagrams; the loop's time for them."""
        clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) for _ in range(n)]
        self.daemon.signal(signal.SIGSTOP)
        for s in clients:
            s.connect(self.daemon.socket)
            try:
                for _ in range(datagrams):
                    s.send(b"")
            except BlockingIOError:  # it is full
                pass
        before = self.daemon.loop_s()
        self.daemon.signal(signal.SIGCONT)
        self.assertTrue(eventually(lambda: self.ended(clients) == n))
        for s in clients:
            s.close()
        return self.daemon.loop_s() - before

    def ended(self, sockets):
        poll = select.poll()
        for s in sockets:
            poll.register(s, 0)
        return sum(bool(events & select.POLLHUP) for _, events in poll.poll(0))

    def test_connections_full_of_datagrams(self):
        """The least of three tries each: CPU time is counted in ticks, and others on the machine add to it."""
        empty, full = (min(self.refuse(500, n) for _ in range(3)) for n in (0, 1000))
        self.assertLess(full, 2 * empty + 0.04)

    def test_the_last_descriptor_of_a_large_memfd(self):
        n, size, spent = 16, 64 << 20, 0
        for _ in range(n):
            fd = wire.memfd(size)
            os.posix_fallocate(fd, 0, size)
            before = self.daemon.loop_s()
            buffer = self.control.import_fd(fd, 4096)
            os.close(fd)
            self.control.drop(buffer)
            spent += self.daemon.loop_s() - before
        self.assertLess(spent, 0.03)


class Lingers(harness.DaemonTest):
    """Descriptors whose closing takes as long as their sender likes, here for as long as the peer reads nothing."""

    open_socket = True
    LINGER_S = 60

    def lingering(self):
        """A socket; its peer ends it at the end of the test."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            s = socket.create_connection(server.getsockname())
            self.clients.append(server.accept()[0])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, self.LINGER_S))
        s.setblocking(False)
        try:
            while True:
                s.send(bytes(1 << 16))
        except BlockingIOError:
            return s

    def send(self, data, before=0):
        """A datagram with such a socket, and so many other descriptors before it."""
        c = self.client()
        self.daemon.signal(signal.SIGSTOP)  # so that it has the last one, and not we
        with self.lingering() as s:
            c.send_bytes(data, [0] * before + [s.fileno()])
        self.daemon.signal(signal.SIGCONT)
        return c

    def assert_quick(self, action):
        began = time.monotonic()
        action()
        self.assertLess(time.monotonic() - began, LATENCY_S)


class Lingering(Lingers):
    def test_the_loop_closes_none(self):
        for c in (self.send(b""), self.send(b"\0", 4), self.send(b"\0", 252), self.send(bytes(17000))):
            self.assert_quick(self.control.ping)
            self.assert_ended(c)

    def test_what_waits_at_a_users_socket_as_it_stops(self):
        d = harness.Daemon()
        self.addCleanup(d.remove)
        d.start()
        d.connect().close()
        d.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, d.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(5):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as c, self.lingering() as s:
                c.connect(f"{d.socket}.users/{os.geteuid()}")
                socket.send_fds(c, [b"\0"], [s.fileno()])
        d.signal(signal.SIGTERM)
        d.signal(signal.SIGCONT)
        self.assert_quick(d.wait)
        self.assertEqual(d.process.returncode, 0)

    @unittest.skipIf(os.geteuid() != 0, "only root can play other users")
    def test_other_users_get_memory(self):
        for _ in range(5):  # more than there are threads for memory
            c = self.send(wire.encode("Request", {"id": 9, "import": {"buffer": 1, "bytes": 1}}))
            self.assertLess(c.receive()["status"], 0)
        other = as_other(self.client)
        self.assert_quick(lambda: other.lend(4096))


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class LingeringAtTheDoor(Lingers):
    """Of a user with as many sessions as it may have: what it sends is closed with its connections."""

    wrapper = ("prlimit", "--nofile=1024")
    settings = {"max_sessions_per_uid": 4}

    def connect_in_vain(self, n):
        return [self.client(hello=False) for _ in range(n)]

    def test_behind_one_that_was_sent(self):
        self.send(b"")
        self.connect_in_vain(80)
        self.assert_quick(lambda: as_other(self.client).ping())

    def test_in_connections_themselves(self):
        self.daemon.signal(signal.SIGSTOP)
        for c in self.connect_in_vain(80):
            with self.lingering() as s:
                c.send_bytes(b"", [s.fileno()])
            c.close()
        self.daemon.signal(signal.SIGCONT)
        self.assert_quick(lambda: as_other(self.client).ping())


class LingeringAtTheStop(Lingers):
    leaks_checked = False

    def test_it_ends_well(self):
        """Still closing what came from a user who is gone; tearDownClass() stops it."""
        c = self.client()
        self.daemon.signal(signal.SIGSTOP)
        sockets = [self.lingering() for _ in range(50)]
        c.send_bytes(b"", [s.fileno() for s in sockets])
        for s in sockets:
            s.close()
        for peer in self.clients:  # until it has stopped
            self.addClassCleanup(peer.close)
        self.clients = []
        self.daemon.signal(signal.SIGCONT)
        self.assert_ended(c)


class LingeringAtTheStopUnderAWatchdog(LingeringAtTheStop):
    """Which wants canaries of the devices meanwhile."""

    wrapper = ("env", "WATCHDOG_USEC=3000")


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Unread(harness.DaemonTest):
    """Descriptors that a client leaves unread are under way: of those the kernel allows kopsd as many as it may open."""

    open_socket = True
    # Root may have any number under way, but for these capabilities.
    wrapper = ("prlimit", "--nofile=1024", "setpriv", "--bounding-set=-sys_resource,-sys_admin")

    def leave_unread(self, sessions, each):
        """By another user, who drops the memory at once."""
        clients = as_other(lambda: [self.client() for _ in range(sessions)])
        for c in clients:
            for _ in range(each):
                _, b = c.start_alloc(8)
                c.start("drop", {"buffer": b})
            self.assertTrue(eventually(lambda: self.control.stats()["buffers"] == 0))
        return clients

    def assert_others_get_memory(self):
        with self.daemon.connect() as c:
            c.lend(8)
            c.open_ring().close()
        self.assertLess(self.daemon.fds(), 256)

    def test_others_get_memory(self):
        unread = self.leave_unread(20, 130)
        self.assert_others_get_memory()
        for c in unread:
            c.send_bytes(b"\0")  # which ends the session, yet not what waits at its client
        self.assert_others_get_memory()
        self.assertTrue(eventually(lambda: self.control.stats()["sessions"] == 1))
        self.assertGreater(self.daemon.fds(), self.before["fds"])  # connections in which something waits stay open
        for c in unread:
            with self.assertRaises(wire.Ended):
                while True:
                    for fd in c.receive()["fds"]:
                        os.close(fd)
        self.assertTrue(eventually(lambda: self.daemon.fds() == self.before["fds"]))

    def test_who_reads_gets_more(self):
        for _ in range(3):
            (c,) = self.leave_unread(1, 100)
            statuses = []
            for _ in range(200):
                reply = c.receive()
                statuses.append(reply["status"])
                for fd in reply["fds"]:
                    os.close(fd)
            self.assertTrue(-wire.STATUS["QUOTA"] in statuses)
            c.drop(c.lend(8))


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
@unittest.skipIf(harness.QUICK, "figures of CPU time are those of builds without sanitizers")
class Watched(harness.DaemonTest):
    """Each datagram wakes all that watch the client's end of a socket, within the daemon's call: 10 ms and more here."""

    SETS, COPIES, SECONDS = 200, 1000, 2
    open_socket = True

    @contextlib.contextmanager
    def watched(self, c):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        with contextlib.ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
            copies = [stack.enter_context(c.sock.dup()) for _ in range(self.COPIES)]
            for _ in range(self.SETS):
                watch = stack.enter_context(select.epoll())
                for s in copies:
                    watch.register(s, select.EPOLLIN)
            yield

    def spent_s(self, action=lambda: None, after_s=0.0):
        """The loop's CPU time, while this is done again and again, and another user pings, as it did before for a while."""
        other = as_other(self.client)
        until = time.monotonic() + after_s
        while time.monotonic() < until:
            other.ping()
            time.sleep(0.001)
        before, until = self.daemon.loop_s(), time.monotonic() + self.SECONDS
        while time.monotonic() < until:
            other.ping()
            action()
            time.sleep(0.001)
        return self.daemon.loop_s() - before

    def test_the_loop_does_not_wake_them_on_and_on(self):
        c, sent = self.client(), []

        def ask():
            with contextlib.suppress(BlockingIOError):
                sent.append(c.start("ping", {}))

        with self.watched(c):
            c.sock.setblocking(False)
            self.assertLess(self.spent_s(ask), self.SECONDS / 6)
            c.sock.setblocking(True)
        for i in sent:
            self.assertEqual(c.wait_any(i)["status"], 0)

    def test_answers_to_jobs_wait_too(self):
        c = self.client()
        op = self.slow_op(c, 6)
        sent = [c.start_submit([self.slow_op(c, 80)] * 15)]  # so that for a while only the other user has turns
        sent += [c.start_submit(op) for _ in range(250)]
        with self.watched(c):
            self.assertLess(self.spent_s(after_s=0.2), self.SECONDS / 6)
        for i in sent:
            self.assertEqual(c.wait_any(i)["status"], 0)


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class LongReplies(harness.DaemonTest):
    """Receipts of many ops go out in their user's turns while others have theirs."""
    settings = {"max_jobs": 512, "max_jobs_per_uid": 512}
    JOBS = 300  # whose receipts fill the socket several times

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(cls.daemon.socket, 0o666)

    def test_all_of_them_come_in_order(self):
        c, other = self.client(), as_other(self.client)
        a = c.import_new(64)
        v = view(a, [4])
        sent = []

        def send():
            for i in range(self.JOBS):
                sent.append(c.start_submit([wire.add(v, v, v)] * (64 if i % 3 else 1)))

        sender = threading.Thread(target=send)
        sender.start()
        until = time.monotonic() + 0.5  # by then nothing more is read of whoever reads no replies
        while time.monotonic() < until:
            other.ping()
        self.assertTrue(sender.is_alive())
        replies = []
        for _ in range(self.JOBS):
            other.ping()
            replies.append(c.receive())
        sender.join()
        self.assertEqual([(r["id"], r["status"]) for r in replies], [(id, 0) for id in sent])
        self.assertEqual([len(r["receipt"]["ops"]) for r in replies], [64 if i % 3 else 1 for i in range(self.JOBS)])
        c.ping()


class FewDescriptors(harness.DaemonTest):
    open_socket = True
    wrapper = ("prlimit", "--nofile=128")
    settings = {"max_sessions_per_uid": 2}

    def send_last_descriptor(self, c, size):
        fd = wire.memfd(size, seals=0)
        os.posix_fallocate(fd, 0, size)
        c.send_bytes(wire.encode("Request", {"id": 9, "import": {"buffer": 1, "bytes": 1}}), [fd])
        os.close(fd)

    def test_refused_connections_do_not_hide_that_descriptors_are_lacking(self):
        """What a second's log may have of one kind of line leaves room for the other."""
        first = self.client()
        for _ in range(15):
            self.assert_ended(self.client(hello=False))
        before = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (3, 128))
        try:
            waiting = self.client(hello=False)
            self.assertTrue(eventually(lambda: WARNING in self.daemon.log()))
        finally:
            resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, before)
        self.assert_ended(waiting)  # taken, so the spare descriptor is back
        first.ping()
        self.assertFalse(self.daemon.log().split(WARNING)[0].endswith(b"left out\n"))

    @unittest.skipIf(os.geteuid() != 0, "only root can play other users")
    def test_one_user_leaves_others_buffers(self):
        c = self.client()
        with self.assertRaises(wire.Refused) as refused:
            for _ in range(64):
                c.import_new(4096)
        self.assertEqual(refused.exception.name, "QUOTA")
        self.assertTrue("LimitNOFILE" in refused.exception.message)
        other = as_other(self.client)
        for _ in range(8):
            other.import_new(4096)

    @unittest.skipIf(os.geteuid() != 0, "only root can play other users")
    def test_others_connect_while_descriptors_of_one_user_are_closed(self):
        """The daemon does not read on what he sent, so as to keep descriptors for others."""
        n, c = 30, self.client()
        self.daemon.signal(signal.SIGSTOP)
        for _ in range(n):
            self.send_last_descriptor(c, 16 << 20)
        self.daemon.signal(signal.SIGCONT)
        for _ in range(5):
            other = as_other(self.daemon.connect)
            other.ping()
            other.close()
        c.sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            for _ in range(n):
                c.receive()
        c.sock.setblocking(True)

    def is_ended(self, c):
        return bool(select.select([c.sock], [], [], 0)[0])

    def test_connections_wait_for_descriptors_to_be_closed(self):
        """The daemon takes none while it is at large memfds that it refused, and so keeps descriptors to spare."""
        c = self.client()
        self.daemon.signal(signal.SIGSTOP)
        for _ in range(30):
            self.send_last_descriptor(c, 8 << 20)
        waiting = [self.client(hello=False) for _ in range(200)]
        self.daemon.signal(signal.SIGCONT)
        most = 0
        while not self.is_ended(waiting[-1]):
            most = max(most, self.daemon.fds())
        self.assertLess(most, 90)  # 16 of its own, these 30, and a few of connections


class Exhaustion(harness.DaemonTest):
    """The daemon itself runs out of descriptors: it sheds, waits and serves on."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        held = cls.daemon.fds()
        resource.prlimit(cls.daemon.pid, resource.RLIMIT_NOFILE, (held + 20, held + 20))

    def test_out_of_descriptors(self):
        flood = [self.client()]
        for _ in range(100):
            flood.append(self.client(hello=False))
        self.assertTrue(eventually(lambda: self.ended(flood[1:]) >= 70))
        self.control.ping()
        self.refused("NOMEM", lambda: [flood[0].lend(4096) for _ in range(20)])  # some may have been closed since
        self.control.ping()
        for c in flood:
            c.close()
        self.assertTrue(eventually(lambda: self.works()))

    def test_an_import_without_room_for_its_descriptor(self):
        """Our own want of descriptors is an answer, and no violation of the client's."""
        c = self.client()
        fd = wire.memfd(4096)
        before = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (self.daemon.fds() - 1, before[1]))
        try:
            refused = self.refused("NOMEM", c.import_fd, fd, 4096)
            self.assertIn("LimitNOFILE", refused.message)
            self.refused("NOMEM", lambda: c.wait(c.start_alloc(4096)[0]))
        finally:
            resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, before)
        c.import_fd(fd, 4096)
        os.close(fd)

    def test_without_its_spare_descriptor_it_sleeps(self):
        """A connection that it cannot even refuse waits; it is taken once there is room again."""
        before = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            c = self.client(hello=False)
            time.sleep(0.1)
            busy = self.daemon.cpu_s()
            time.sleep(0.5)
            self.assertLess(self.daemon.cpu_s() - busy, 0.2)
        finally:
            resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, before)
        c.hello()
        c.ping()

    def test_a_ring_without_room_for_its_descriptor(self):
        """It gets a code of the protocol: those from 32 on are libkops's own."""
        c = self.client()
        before = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (self.daemon.fds() - 1, before[1]))
        try:
            refused = self.refused("NOMEM", c.open_ring)
            self.assertIn("LimitNOFILE", refused.message)
        finally:
            resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, before)
        c.open_ring()

    def ended(self, clients):
        poll = select.poll()
        for c in clients:
            poll.register(c.sock, 0)
        return sum(bool(events & select.POLLHUP) for _, events in poll.poll(0))

    def works(self):
        try:
            with self.daemon.connect() as c:
                c.lend(4096)
                return True
        except (wire.Ended, wire.Refused):
            return False

    leaks_checked = False


if __name__ == "__main__":
    harness.main()
