"""Users with different uids: fair shares, quotas of their own, and nothing of one in the hands of another."""
import contextlib
import errno
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time
import traceback
import unittest
import warnings

from support import harness, wire
from support.harness import count, eventually
from support.wire import view

ALICE, BOB, CAROL = 61001, 61002, 61003
LAB, CLASS = 61101, 61102
COUNT_CALLS = os.environ.get("KOPS_TEST_COUNT_CALLS", "")
KINDS = ("free", "munmap", "close", "fcntl", "fstat", "getsockopt", "send")  # of support/count_calls.c
MANY = 2000  # of whatever a user has
FEW = 1000   # far more than anybody can have done in 25 us and a turn, and fewer than all
FILES = 8192
OCCUPIED_MS = 60000  # far more than a test needs, and far from max-run-time, also where kopsd plans several times as much


def as_user(uid, function, *args, groups=()):
    """Starts function(*args) in a child with that uid, the gid of the same number and these groups; a handle for
    result()."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        warnings.simplefilter("ignore")  # its sockets close as it ends
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            answer = (True, function(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(into, "wb") as f:
            pickle.dump(answer, f)
        os._exit(0)
    os.close(into)
    return pid, out


def result(handle):
    pid, out = handle
    with os.fdopen(out, "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    ok, value = pickle.loads(data)
    if not ok:
        raise AssertionError(value)
    return value


def kill(handle):
    pid, out = handle
    os.kill(pid, signal.SIGKILL)
    os.close(out)
    os.waitpid(pid, 0)


class Loads:
    """Users who keep the CPU device busy."""

    def work(self, ms, jobs, sessions=1, priority=wire.NORMAL):
        """Queues so many jobs of ms, spread over sessions, and waits for all."""
        clients = [self.daemon.connect() for _ in range(sessions)]
        ops = [self.slow_op(c, ms) for c in clients]
        out = [(c, c.start_submit(op, priority=priority)) for _ in range(jobs // sessions) for c, op in zip(clients, ops)]
        for c, job in out:
            c.wait(job)

    def give(self, shares):
        """To sections of users and groups. Others have 100."""
        os.makedirs(self.daemon.config + ".d", exist_ok=True)
        with open(self.daemon.config + ".d/shares.conf", "w", encoding="utf-8") as f:
            for name, share in shares.items():
                print(f"[{name}]", f"share = {share}", sep="\n", file=f)
        self.daemon.reload()

    @contextlib.contextmanager
    def occupied_by_root(self):
        """The device has a job that ends with the block. It goes before jobs of LOW priority and in the background."""
        with self.daemon.connect() as c:
            job = c.start_submit(self.slow_op(c, OCCUPIED_MS))
            self.assertTrue(eventually(self.control.any_running))
            yield
            c.cancel(job)  # children have the socket too, so to close it would not do

    def await_queued(self, jobs):
        self.assertTrue(eventually(lambda: self.control.stats()["devices"][0]["queued"] >= jobs))

    def compete(self, alice, bob, queued, sections=None, shares=(100, 100)):
        """What each had while both had jobs, and the most that it had at once: us of the device, over its share of 100.

        Both run a function with arguments. No job starts before so many are queued, since a client that must wait for a CPU
        would otherwise leave the device to the other. Had is what a user is charged: on a busy machine, a job keeps the
        device from others for much longer than it computes."""
        before = self.last_ended()
        self.give({f"user {uid}": 0 for uid in (ALICE, BOB)})
        with self.occupied_by_root():
            both = [as_user(ALICE, *alice), as_user(BOB, *bob)]
            self.await_queued(queued)
            self.give(sections or {})
        for each in both:
            result(each)
        kept = self.kept_us(self.ended_after(before))
        uids = [uid for uid, _ in kept]
        last = len(uids) - 1 - max(map(uids[::-1].index, (ALICE, BOB)))
        had = [[us for uid, us in kept[:last + 1] if uid == wanted] for wanted in (ALICE, BOB)]
        return [(sum(jobs) * 100 / share, max(jobs, default=0) * 100 / share) for jobs, share in zip(had, shares)]

    @staticmethod
    def kept_us(ended):
        """(uid, us for which it kept the device from others) for each job: from its start or the end of the job before. None
        may have been paused."""
        freed_ns, kept = 0, []
        for job in ended:
            took_us = job["total_us"] - job["queue_us"]
            kept.append((job["uid"], min(took_us, (job["ended_ns"] - freed_ns) / 1000)))
            freed_ns = job["ended_ns"]
        return kept

    def assert_no_more(self, one, other):
        """By start-time fair queuing, a user is never further ahead than by the longest jobs of both."""
        self.assertLessEqual(one[0], other[0] + one[1] + other[1])

    def assert_fair(self, one, other):
        self.assert_no_more(one, other)
        self.assert_no_more(other, one)

    def last_ended(self):
        """The number of the job that ended last. Measures the machine once, for all users."""
        with self.daemon.connect() as c:
            c.submit(self.slow_op(c, 1))
        return max(job["number"] for job in self.control.trace())

    def ended_after(self, number):
        """Alice's and Bob's jobs, in the order of their ends."""
        return [job for job in reversed(self.control.trace()) if job["number"] > number and job["uid"] in (ALICE, BOB)]


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Users(Loads, harness.DaemonTest):
    open_socket = True
    settings = {"max_mapped_per_uid": "8M", "max_sessions_per_uid": 20}

    def run_as(self, uid, function, *args):
        return result(as_user(uid, function, *args))

    def test_short_jobs_run_beside_a_long_one(self):
        """Not only when it pauses, which is at most once in each of its parts."""
        def parts(which):
            return [s["oldest"][which] for s in self.control.list_sessions() if s["oldest"]]

        def small():
            c = self.daemon.connect()
            op = wire.add(*[view(c.import_new(64), [4])] * 3)
            for _ in range(1000):
                c.submit(op)
        before = self.last_ended()
        long = as_user(ALICE, self.work, 3000, 1)
        self.assertTrue(harness.eventually(self.control.any_running))
        all_parts, = parts("parts")
        result(as_user(BOB, small))
        done = (parts("parts_done") or [all_parts])[0]
        result(long)
        uids = [job["uid"] for job in self.ended_after(before)]
        self.assertGreater(all_parts, 10)
        self.assertGreater(uids.index(ALICE), 3 * done)

    def test_receipts_tell_of_pauses(self):
        """A job that had to wait for others after its start says how often and how long."""
        def run_long():
            c = self.daemon.connect()
            receipt = c.submit(self.slow_op(c, 1000))
            return receipt["pauses"], receipt["paused_us"], receipt["total_us"]
        self.last_ended()
        self.assertEqual(self.run_as(ALICE, run_long)[:2], (0, 0))
        long, other = as_user(ALICE, run_long), as_user(BOB, self.work, 40, 20)
        result(other)
        pauses, paused_us, total_us = result(long)
        self.assertGreater(pauses, 0)
        self.assertGreater(paused_us, 0)
        self.assertLess(paused_us, total_us)

    def test_permission(self):
        os.chmod(self.daemon.socket, 0o660)
        try:
            def try_it():
                try:
                    self.daemon.connect()
                except PermissionError:
                    return "refused"
            self.assertEqual(self.run_as(ALICE, try_it), "refused")
        finally:
            os.chmod(self.daemon.socket, 0o666)

    def test_quotas_are_separate(self):
        filled, into = os.pipe()

        def fill():
            c = self.daemon.connect()
            fd = wire.memfd(16 << 20)
            c.import_fd(fd, 8 << 20)
            os.write(into, b"x")
            try:
                c.import_fd(fd, 1)
            except wire.Refused as e:
                time.sleep(0.3)
                return e.name
        both = [as_user(uid, fill) for uid in (ALICE, BOB)]
        for _ in both:
            os.read(filled, 1)
        self.assertGreaterEqual(self.control.stats()["mapped_bytes"], 16 << 20)
        self.assertEqual([result(each) for each in both], ["QUOTA", "QUOTA"])
        os.close(filled)
        os.close(into)

    def test_sessions_are_counted_by_user(self):
        def take_all():
            got = [self.daemon.connect() for _ in range(20)]
            try:
                self.daemon.connect()
            except wire.Refused:
                return len(got)
        for uid in (ALICE, BOB):
            self.assertEqual(self.run_as(uid, take_all), 20)
        self.control.ping()

    def connect_anew_for_each(self, ms, jobs):
        for _ in range(jobs):
            with self.daemon.connect() as c:
                c.submit(self.slow_op(c, ms))

    def test_fair_by_cost_not_by_count(self):
        """Jobs of 5 ms against jobs of 1 ms: each user gets half of the device."""
        self.assert_fair(*self.compete((self.work, 5, 48), (self.work, 1, 240), 288))

    def test_a_new_connection_starts_no_new_account(self):
        """Who connects anew for each large job has had what it has had."""
        a, b = self.compete((self.work, 1, 240), (self.connect_anew_for_each, 5, 40), 241)
        self.assert_no_more(b, a)

    def test_fair_between_one_and_many_sessions(self):
        """Three sessions of one user get no more than one session of another."""
        self.assert_fair(*self.compete((self.work, 5, 150, 3), (self.work, 5, 150), 300))

    def test_the_shortest_runs_take_no_more_than_their_share(self):
        """To hand them over takes longer than they do: that is their user's time too."""
        def flood():
            c = self.daemon.connect()
            op = wire.add(*[view(c.import_new(64), [4])] * 3)
            for number in range(1, 257):
                c.submit(op, prepare=number, only_prepare=1)
            ring = c.open_ring(256)
            while True:
                ring.refill(256)
                ring.publish()

        def share():
            """Of the time in which its jobs run one after the other, the part in which they run."""
            c = self.daemon.connect()
            op = self.slow_op(c, 4)
            out = [c.start_submit(op) for _ in range(200)]
            c.wait(out[0])
            began = time.monotonic()
            took_us = sum(c.wait(job)["receipt"]["compute_us"] for job in out[1:])
            return took_us / 1e6 / (time.monotonic() - began)
        with self.daemon.connect() as c:
            self.slow_op(c, 1)
        a = as_user(ALICE, flood)
        self.assertTrue(eventually(lambda: ALICE in self.control.list_users() and self.control.list_users()[ALICE]["usage"]["jobs_done"] > 1000))
        b = self.run_as(BOB, share)
        kill(a)
        self.assertGreater(b, 0.2)

    def test_high_priority_gains_nothing_over_others(self):
        self.assert_fair(*self.compete((self.work, 5, 240, 1, wire.HIGH), (self.work, 5, 240), 480))

    def test_sums_of_16_bit_numbers_are_paused(self):
        """One row or product that takes seconds: what they have added up goes on when another had its turn."""
        n = count(1 << 28, 1 << 25)

        def wait_beside(op):
            c = self.daemon.connect()
            c.import_new(4096)
            began = time.monotonic()
            c.wait(c.start_submit(op))
            return time.monotonic() - began

        def small():
            c = self.daemon.connect()
            op = wire.add(*[view(c.import_new(64), [4])] * 3)
            began = time.monotonic()
            c.submit(op)
            return time.monotonic() - began
        y = view(1, [1, 1], offset=2048, dtype=wire.F16)
        for op in (wire.gemm(view(1, [1, n], [0, 0], dtype=wire.F16), view(1, [n, 1], [0, 0], dtype=wire.F16), y,
                             kernel="reference"),
                   {"kernel": "reference", **wire.reduce(view(1, [1, n], [0, 0], dtype=wire.F16), y)}):
            long = as_user(ALICE, wait_beside, op)
            time.sleep(0.2)
            waited = self.run_as(BOB, small)
            # With a sanitizer a part takes many times longer than planned, so there are few.
            self.assertLess(waited, (0.6 if harness.QUICK else 0.3) * result(long))

    def test_latency_beside_a_flood(self):
        """One user queues all it may; another's small job goes next after what runs."""
        def flood():
            c = self.daemon.connect()
            op = self.slow_op(c, 20)
            ids = [c.start_submit(op, queue=q) for q in range(100)]
            for i in ids:
                try:
                    c.wait(i)
                except wire.Refused:
                    pass

        def small():
            c = self.daemon.connect()
            a = c.import_new(64)
            worst = 0
            for _ in range(5):
                before = c.stats()["devices"][0]["jobs_done"]
                c.submit(wire.add(*[view(a, [4])] * 3))
                worst = max(worst, c.stats()["devices"][0]["jobs_done"] - before - 1)
            return worst
        a = as_user(ALICE, flood)
        time.sleep(0.3)
        worst = self.run_as(BOB, small)
        kill(a)
        # The two in flight, and one that starts between the requests on either side.
        self.assertLessEqual(worst, 4)


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Shares(Loads, harness.DaemonTest):
    """What an administrator gives to users, in proportion to others."""

    open_socket = True

    def test_three_to_one(self):
        self.assert_fair(*self.compete((self.work, 5, 240), (self.work, 5, 160), 400,
                                       {f"user {ALICE}": 150, f"user {BOB}": 50}, (150, 50)))

    def test_others_have_100(self):
        self.assert_fair(*self.compete((self.work, 5, 240), (self.work, 5, 160), 400, {f"group {ALICE}": 200}, (200, 100)))

    def test_the_background_has_what_others_leave(self):
        """What it has started makes way: no job of it ends between the first and the last of others that are queued."""
        self.give({f"user {ALICE}": 0})
        before = self.last_ended()
        working = as_user(ALICE, self.work, 100, 10)
        self.assertTrue(eventually(self.control.any_running))
        with self.occupied_by_root():
            others = as_user(BOB, self.work, 5, 100, 1, wire.LOW)
            self.assertTrue(eventually(lambda: self.control.list_users().get(BOB, {}).get("queued") == 100))
        for each in others, working:
            result(each)
        uids = [job["uid"] for job in self.ended_after(before)]
        of_bob = [i for i, uid in enumerate(uids) if uid == BOB]
        self.assertEqual((uids.count(ALICE), len(of_bob)), (10, 100))
        self.assertNotIn(ALICE, uids[of_bob[0]:of_bob[-1]])

    def test_who_leaves_the_background_waits_no_longer(self):
        """What runs makes way at the reload, not only when it ends or another job comes."""
        self.give({f"user {ALICE}": 0})
        with self.occupied_by_root():
            working = as_user(ALICE, self.work, 5, 1)
            self.await_queued(1)
            self.give({})
            result(working)
            self.assertTrue(self.control.any_running())


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Limits(unittest.TestCase):
    """Sections of users and groups."""

    def start(self, sections, **settings):
        self.daemon = harness.Daemon(max_mapped_per_uid="4M", **settings)
        self.addCleanup(self.daemon.remove)
        os.mkdir(self.daemon.config + ".d")
        self.write_sections(sections)
        self.daemon.start()
        os.chmod(self.daemon.socket, 0o666)

    def write_sections(self, sections):
        with open(self.daemon.config + ".d/limits.conf", "w", encoding="utf-8") as f:
            for name, settings in sections.items():
                print(f"[{name}]", *settings, sep="\n", file=f)

    @staticmethod
    def fill(c):
        """MiB that may be imported, until one is refused; all are given back."""
        fd = wire.memfd(1 << 20)
        buffers = []
        try:
            while len(buffers) < 100:
                buffers.append(c.import_fd(fd, 1 << 20))
        except wire.Refused as e:
            assert (e.name, "max-mapped-per-uid" in e.message) == ("QUOTA", True), e.message
        os.close(fd)
        for b in buffers:
            c.drop(b)
        return len(buffers)

    def fill_once(self):
        with self.daemon.connect() as c:
            return self.fill(c)

    def mib(self, uid, *groups):
        mib = result(as_user(uid, self.fill_once, groups=groups))
        with self.daemon.connect() as c:  # limits of a session count until it has ended
            self.assertTrue(harness.eventually(lambda: c.list_users()[uid]["sessions"] == 0))
        return mib

    def test_users_over_groups_over_everybody(self):
        self.start({f"user {ALICE}": ["max-mapped-per-uid = 6M"], f"group {LAB}": ["max-mapped-per-uid = 8M"],
                    f"group {CLASS}": ["max-mapped-per-uid = 2M"], "user nobody-has-this-name": [],
                    f"group {CAROL}": ["max-mapped-per-uid = 9M"]})
        self.assertEqual(self.mib(BOB), 4)
        self.assertEqual(self.mib(ALICE), 6)
        self.assertEqual(self.mib(ALICE, LAB, CLASS), 6)
        self.assertEqual(self.mib(BOB, LAB), 8)
        self.assertEqual(self.mib(BOB, CLASS), 2)
        self.assertEqual(self.mib(BOB, CLASS, 61999, LAB), 8)
        self.assertEqual(self.mib(CAROL), 9)  # the primary group counts too
        self.assertIn(b'limits.conf:7: no user is named "nobody-has-this-name"; this section is ignored\n',
                      self.daemon.log())

    def test_sessions_and_jobs(self):
        self.start({f"user {ALICE}": ["max-sessions-per-uid = 2", "max-jobs-per-uid = 3", "max-buffers-per-uid = 4"]})

        def take_all():
            got = [self.daemon.connect(), self.daemon.connect()]
            try:
                self.daemon.connect()
                return "a third session"
            except wire.Refused as e:
                if "has 2 sessions, and max-sessions-per-uid is 2" not in e.message:
                    return e.message
            c = got[0]
            buffers = [c.import_new(4096) for _ in range(4)]
            try:
                c.import_new(4096)
            except wire.Refused as e:
                if "max-buffers-per-uid" not in e.message:
                    return e.message
            jobs = [c.start_submit(wire.long_sum(*buffers[:2], 1 << 32)) for _ in range(4)]
            return wire.STATUS_NAME[c.wait_any(jobs[3])["status"]]

        self.assertEqual(result(as_user(ALICE, take_all)), "BUSY")

    def fill_before_and_after(self, between, *groups):
        """By one session of Bob's: MiB before between() is called, and after."""
        ready, go = os.pipe(), os.pipe()

        def fill_at_each_signal():
            with self.daemon.connect() as c:
                before = self.fill(c)
                os.write(ready[1], b"x")
                os.read(go[0], 1)
                return before, self.fill(c)

        handle = as_user(BOB, fill_at_each_signal, groups=groups)
        os.read(ready[0], 1)
        between()
        os.write(go[1], b"x")
        for end in (*ready, *go):
            os.close(end)
        return result(handle)

    def test_a_reload_reaches_sessions_that_are_open(self):
        def reload():
            self.write_sections({f"group {LAB}": ["max-mapped-per-uid = 3M"]})
            self.daemon.reload()

        self.start({f"group {LAB}": ["max-mapped-per-uid = 8M"]})
        self.assertEqual(self.fill_before_and_after(reload, LAB), (8, 3))

    def test_a_refused_session_widens_nothing(self):
        def be_refused():
            try:
                self.daemon.connect()
            except wire.Refused as e:
                return e.message
            return "connected"

        self.start({f"group {LAB}": ["max-mapped-per-uid = 8M"]}, max_sessions=1)
        filled = self.fill_before_and_after(
            lambda: self.assertEqual(result(as_user(BOB, be_refused, groups=[LAB])),
                                     "kopsd has 1 sessions, and max-sessions is 1; try again later"))
        self.assertEqual(filled, (4, 4))


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Canaries(harness.DaemonTest):
    """Bytes that Alice leaves in lent and resident memory are searched for by Bob."""

    open_socket = True
    leaks_checked = False
    settings = {"pool_cache": "32M", "warm_pool": "2M"}
    CANARY = b"\xc5\x5c\xa3\x3a"

    def leave(self, seed, rounds):
        """Alice: fills whatever she gets and gives it back in every way."""
        rnd = harness.random.Random(seed)
        c = self.daemon.connect()
        for _ in range(rounds):
            size = rnd.choice([4096, 65536, 100_000, 1 << 20])
            r, b = c.start_alloc(size)
            (fd,) = c.wait(r)["fds"]
            m = mmap.mmap(fd, os.fstat(fd).st_size)
            os.close(fd)
            assert m.find(self.CANARY) < 0, "her own memory comes back zeroed too"
            m[:] = self.CANARY * (len(m) // 4)
            res = c.resident(size)
            c.submit(wire.copy(view(b, [size // 4]), view(res, [size // 4])))
            # A product whose packing goes through the daemon's workspace.
            c.submit(wire.gemm(view(b, [32, 32], [1, 32]), view(b, [32, 32], [31, 1]), view(res, [32, 32])))
            c.submit(wire.copy(view(b, [size // 4]), view(res, [size // 4])))
            c.drop(b)
            c.drop(res)
            m.close()
            if rnd.random() < 0.1:
                c.close()
                c = self.daemon.connect()

    def search(self, seed, rounds):
        """Bob: looks at whatever he gets."""
        rnd = harness.random.Random(seed)
        c = self.daemon.connect()
        for n in range(rounds):
            size = rnd.choice([4096, 65536, 100_000, 1 << 20])
            r, b = c.start_alloc(size)
            (fd,) = c.wait(r)["fds"]
            m = mmap.mmap(fd, os.fstat(fd).st_size)
            os.close(fd)
            if m[:].count(0) != len(m):
                return f"round {n}: lent memory is not zeroed"
            res = c.resident(size)
            c.submit(wire.copy(view(res, [size // 4]), view(b, [size // 4])))
            if m[:].count(0) != len(m):
                return f"round {n}: resident memory is not zeroed"
            c.drop(b)
            c.drop(res)
            m.close()
        return "clean"

    def test_nothing_of_alice_reaches_bob(self):
        rounds = count(1500, 100)
        alice = as_user(ALICE, self.leave, self.random.randrange(1 << 30), rounds)
        bob = as_user(BOB, self.search, self.random.randrange(1 << 30), rounds)
        result(alice)
        self.assertEqual(result(bob), "clean")

    def test_a_segment_stays_with_its_user(self):
        """Alice keeps a mapping of what she gave back: Bob must never get the same file."""
        def hold():
            c = self.daemon.connect()
            inodes = set()
            for _ in range(50):
                r, b = c.start_alloc(65536)
                (fd,) = c.wait(r)["fds"]
                inodes.add(os.fstat(fd).st_ino)
                os.close(fd)
                c.drop(b)
            return inodes
        alice, bob = result(as_user(ALICE, hold)), result(as_user(BOB, hold))
        self.assertLess(len(alice), 50, "the cache is not used")
        self.assertEqual(alice & bob, set())


def own_socket(path, uid):
    return f"{path}.users/{uid}"


def connect(path):
    """At once or not at all."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect(path)
    except OSError:
        s.close()
        raise
    return s


def try_to(function, *args):
    """The name of the error with which it fails."""
    try:
        result = function(*args)
        if isinstance(result, socket.socket):
            result.close()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "done"


def sockets_at(end):
    """How many sockets have a path with this end: those that listen there, and the daemon's end of each connection."""
    with open("/proc/net/unix", encoding="utf-8") as f:
        return sum(line.endswith(end + "\n") for line in f)


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Sockets(harness.DaemonTest):
    """Each user that got in has a socket that nobody else can come by."""

    open_socket = True
    settings = {"max_sessions_per_uid": 4}

    def run_as(self, uid, function, *args, groups=()):
        return result(as_user(uid, function, *args, groups=groups))

    def come(self, uid, groups=()):
        self.run_as(uid, lambda: self.daemon.connect().close(), groups=groups)

    def knock(self, uid, groups=(), at=None):
        return self.run_as(uid, try_to, connect, own_socket(self.daemon.socket, at or uid), groups=groups)

    def test_who_got_in_has_one(self):
        uid = 61888
        self.assertEqual(self.knock(uid), "ENOENT")
        self.come(uid)

        def use():
            with contextlib.closing(wire.Client(own_socket(self.daemon.socket, uid))) as c:
                c.ping()
                return list(c.list_users())
        self.assertIn(uid, self.run_as(uid, use))
        self.assertEqual(self.daemon.user_sockets().count(uid), 1)

    def test_nobody_else_gets_in_there(self):
        for uid in (ALICE, BOB):
            self.come(uid)
        for uid, other in ((ALICE, BOB), (BOB, ALICE)):
            self.assertEqual(self.knock(uid), "done")
            self.assertEqual(self.knock(uid, at=other), "EACCES")

    def test_nobody_lists_them_or_puts_one_there(self):
        self.come(ALICE)
        folder = self.daemon.socket + ".users"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            for action in ((os.listdir, folder), (os.unlink, own_socket(self.daemon.socket, ALICE)),
                           (s.bind, own_socket(self.daemon.socket, 1))):
                self.assertEqual(self.run_as(ALICE, try_to, *action), "EACCES")

    def test_who_left_the_group_does_not_get_in_there(self):
        """The folder lets in whom everybody's socket did when a user last got one."""
        try:
            os.chown(self.daemon.socket, 0, LAB)
            os.chmod(self.daemon.socket, 0o660)
            self.come(CAROL, [LAB])
            self.assertEqual(self.knock(CAROL, [LAB]), "done")
            self.assertEqual(self.knock(CAROL), "EACCES")
        finally:
            os.chown(self.daemon.socket, 0, 0)
            os.chmod(self.daemon.socket, 0o666)
        self.come(CAROL + 1)
        self.assertEqual(self.knock(CAROL), "done")

    @unittest.skipIf(harness.QUICK, "thousands of connections")
    def test_beside_a_full_queue(self):
        """While others' connections fill everybody's, a user with a socket need not wait for a place."""
        uid, before = 61777, sockets_at(self.daemon.socket)  # who has a socket nowhere else
        self.come(uid)
        with contextlib.ExitStack() as stack:
            self.daemon.signal(signal.SIGSTOP)
            stack.callback(self.daemon.signal, signal.SIGCONT)
            os.waitid(os.P_PID, self.daemon.pid, os.WSTOPPED | os.WNOWAIT)
            with self.assertRaises(BlockingIOError):
                for _ in range(100000):
                    stack.enter_context(connect(self.daemon.socket))
            self.assertEqual(self.knock(uid), "done")
            program, env = harness.client_for_all(self.daemon.folder, self.daemon.socket)
            client = subprocess.Popen([program, "ping"], env=env, text=True, stdout=subprocess.PIPE, user=uid, group=uid,
                                      extra_groups=[])
            self.assertTrue(eventually(lambda: sockets_at(f"/{uid}") == 3))
            self.assertIsNone(client.poll())
        self.assertIn("healthy", client.communicate(timeout=600)[0])
        self.assertEqual(client.returncode, 0)
        self.assertTrue(eventually(lambda: sockets_at(self.daemon.socket) == before))  # it has refused thousands

    def test_those_of_others_stay(self):
        """However many come: one person may be many users. What nobody uses for a minute goes."""
        d = harness.Daemon()
        self.addCleanup(d.remove)
        d.start(wrapper=["prlimit", "--nofile=512"])  # for eight
        os.chmod(d.socket, 0o666)

        def come(uid):
            self.run_as(uid, lambda: d.connect().close())
        uids = range(62000, 62020)
        for uid in uids:
            come(uid)
        self.assertEqual(d.user_sockets(), list(uids[:8]))
        if harness.LONG:
            time.sleep(61)
            self.run_as(uids[0], lambda: wire.Client(own_socket(d.socket, uids[0])).close())
            come(uids[10])
            self.assertTrue(eventually(lambda: d.user_sockets() == [uids[0], *uids[2:8], uids[10]]))
        self.assertEqual(d.stop(), 0)

    def test_what_everybodys_socket_refuses(self):
        """Rights that are taken away there are gone here."""
        self.come(ALICE)
        os.chmod(self.daemon.socket, 0o600)
        try:
            def come():
                try:
                    wire.Client(own_socket(self.daemon.socket, ALICE)).close()
                except wire.Ended:
                    return "ended"
            self.assertEqual(self.run_as(ALICE, come), "ended")
            self.assertTrue(eventually(lambda: self.daemon.user_sockets() == []))
            self.assertEqual(self.run_as(ALICE, try_to, connect, self.daemon.socket), "EACCES")
        finally:
            os.chmod(self.daemon.socket, 0o666)
        self.come(ALICE)
        self.assertEqual(self.knock(ALICE), "done")

    def test_limits_hold_there_too(self):
        self.come(ALICE)

        def take_all():
            with contextlib.ExitStack() as stack:
                for n in range(100):
                    try:
                        c = wire.Client(own_socket(self.daemon.socket, ALICE))
                    except wire.Refused as e:
                        return e.name, n
                    stack.callback(c.close)
        self.assertEqual(self.run_as(ALICE, take_all), ("QUOTA", 4))


class LoopTest(harness.DaemonTest):
    """No turn of the loop grows with what a user has: the most of each kind that it did between two looks at sockets,
    counted, not timed, so a busy machine changes nothing."""

    @classmethod
    def setUpClass(cls):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits[1] != resource.RLIM_INFINITY and limits[1] < FILES:
            raise unittest.SkipTest(f"needs {FILES} descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, limits[1]))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        file = tempfile.NamedTemporaryFile()
        cls.addClassCleanup(file.close)
        file.truncate(8 * len(KINDS))
        cls.counts = mmap.mmap(file.fileno(), 8 * len(KINDS))
        os.environ.update(LD_PRELOAD=COUNT_CALLS, COUNT_CALLS=file.name)
        try:
            super().setUpClass()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["COUNT_CALLS"]
        assert harness.eventually(lambda: cls.most()["send"] > 0), "nothing counts"

    @classmethod
    def most(cls):
        return dict(zip(KINDS, struct.unpack(f"<{len(KINDS)}Q", cls.counts)))

    def count(self):
        """From now on."""
        self.control.ping()  # what came before was done before
        self.counts[:] = bytes(len(self.counts))

    def assert_few(self):
        self.control.ping()
        for kind, n in self.most().items():
            self.assertLessEqual(n, FEW, f"{kind} between two looks at sockets; {self.most()}")

    def close(self, client):
        self.clients.remove(client)
        client.close()

    def await_buffers(self, n):
        self.assertTrue(harness.eventually(lambda: self.control.stats()["buffers"] == n))


@unittest.skipIf(not COUNT_CALLS, "a sanitizer has calls of its own")
class Ends(LoopTest):
    """Sessions and buffers that go."""

    settings = {"max_buffers": MANY}

    def import_many(self, c):
        fd = wire.memfd(4096)
        buffers = [c.import_fd(fd, 4096) for _ in range(MANY)]
        os.close(fd)
        return buffers

    def prepare_many(self, c):
        """All of one buffer, which is returned."""
        b = c.import_new(4096)
        op = wire.copy(view(b, [16]), view(b, [16], offset=1024))
        for i in range(MANY):
            c.wait(c.start_submit(op, prepare=i + 1))
        return b

    def test_a_session_with_many_buffers(self):
        c = self.client()
        self.import_many(c)
        self.count()
        self.close(c)
        self.await_buffers(0)
        self.assert_few()
        self.assertEqual(self.most()["munmap"], 0)  # that is for other threads

    def test_many_drops(self):
        c = self.client()
        buffers = self.import_many(c)
        self.count()
        for some in (buffers[i:i + 100] for i in range(0, MANY, 100)):
            for r in [c.start("drop", {"buffer": b}) for b in some]:
                c.wait(r)
        self.assertEqual(self.control.stats()["buffers"], 0)
        self.assert_few()
        self.assertEqual(self.most()["munmap"], 0)

    def test_a_session_with_many_prepared_jobs(self):
        c = self.client()
        self.prepare_many(c)
        self.count()
        self.close(c)
        self.await_buffers(0)
        self.assert_few()

    def test_a_buffer_of_many_prepared_jobs(self):
        """It is gone at once for those who run them, and when its Drop is answered for all."""
        c = self.client()
        b = self.prepare_many(c)
        self.count()
        drop = c.start("drop", {"buffer": b})
        self.assertEqual(self.refused("NOT_FOUND", c.run, MANY).name, "NOT_FOUND")
        c.wait(drop)
        self.assertEqual(self.control.stats()["buffers"], 0)
        self.assert_few()

    def test_a_session_with_many_jobs(self):
        c, ids = self.occupy(200)
        other = self.client()
        b = other.import_new(4096)
        op = wire.copy(view(b, [16]), view(b, [16], offset=1024))
        for _ in range(other.welcome["max_jobs"]):
            other.start_submit(op)
        other.stats()
        self.count()
        self.close(other)
        for i in ids:
            c.wait(i)
        self.await_buffers(2)
        self.assert_few()

    def test_many_deadlines_at_once(self):
        c, ids = self.occupy(1200)
        others = [self.client() for _ in range(3)]
        b = [other.import_new(4096) for other in others]
        self.count()
        end = time.monotonic() + 0.6
        late = [(other, other.start_submit(wire.copy(view(x, [16]), view(x, [16], offset=1024)),
                                           deadline_us=max(1, int((end - time.monotonic()) * 1e6))))
                for other, x in zip(others, b) for _ in range(other.welcome["max_jobs"])]
        for other, job in late:
            self.assertEqual(wire.STATUS_NAME[other.wait_any(job)["status"]], "DEADLINE")
        self.assert_few()
        for i in ids:
            c.wait(i)

    def test_a_lowered_limit(self):
        """What no longer fits goes by and by, as new jobs come."""
        c = self.client()
        b = self.prepare_many(c)
        op = wire.copy(view(b, [16]), view(b, [16], offset=1024))
        self.addCleanup(self.daemon.reload, max_prepared_per_uid="64M")
        self.daemon.reload(max_prepared_per_uid="64K")
        held = self.control.list_users()[os.geteuid()]["prepared_bytes"]
        self.count()
        for _ in range(3):
            c.submit(op, prepare=1)
        self.assert_few()
        self.assertLess(self.control.list_users()[os.geteuid()]["prepared_bytes"], held)
        self.assertEqual(c.run(MANY)["ops"][0]["kernel"], c.submit(op)["ops"][0]["kernel"])

    def test_a_reload_with_many_sessions(self):
        clients = [self.client() for _ in range(500)]
        self.count()
        self.daemon.reload(max_buffers_per_uid=MANY + 1)
        self.assert_few()
        clients[0].ping()

    def test_the_next_session_finds_room(self):
        """What the last one had is given back before requests of the next are read."""
        for _ in range(3):
            c = self.client()
            jobs = [self.prepare_many(c)]
            self.close(c)
            c = self.client()
            self.assertEqual(self.control.list_users()[os.geteuid()]["prepared_bytes"], 0, jobs)
            self.close(c)
        self.await_buffers(0)


@unittest.skipIf(not COUNT_CALLS, "a sanitizer has calls of its own")
class Kept(LoopTest):
    """Memory that a client has beyond its sessions."""

    BYTES = 64 << 10
    settings = {"max_buffers": MANY, "max_mapped_per_uid": BYTES * (MANY + 1)}

    def keep_many(self):
        """Descriptors of segments whose session has gone."""
        c = self.client()
        fds = [c.wait(c.start_alloc(self.BYTES)[0])["fds"][0] for _ in range(MANY)]
        self.close(c)
        return fds

    def drop_all(self, fds):
        for fd in fds:
            os.close(fd)
        self.client()  # its end has the daemon look
        self.close(self.clients[-1])
        self.await_buffers(0)

    def test_looks(self):
        fds = self.keep_many()
        self.count()
        c = self.client()
        self.refused("QUOTA", c.lend, self.BYTES * 2)
        for _ in range(3):
            self.close(self.client())
        c.import_new(4096)
        c.import_fd(fds[MANY // 2], self.BYTES)
        self.close(c)
        self.await_buffers(MANY)
        self.assert_few()
        self.count()
        self.drop_all(fds)
        self.assert_few()

    def test_what_nobody_has_makes_room(self):
        """Before the timer has looked: a request that finds no room looks itself, for Alloc and Import."""
        fds = self.keep_many()
        self.assertTrue(harness.eventually(lambda: self.daemon.maps() == 0))
        c = self.client()
        for fd in fds:
            os.close(fd)
        self.count()
        c.lend(self.BYTES * MANY // 4)
        c.import_new(self.BYTES * MANY // 2)
        self.assert_few()
        self.close(c)
        self.await_buffers(0)

    def test_kept_memory_comes_back(self):
        """At the user's limit: it counts once."""
        fds = self.keep_many()
        c = self.client()
        self.await_buffers(MANY)
        self.assertTrue(harness.eventually(lambda: self.daemon.maps() == 0))
        os.pwrite(fds[7], b"content", 0)
        self.count()
        buffers = [c.import_fd(fd, self.BYTES) for fd in fds]
        self.assertEqual(self.control.stats()["mapped_bytes"], self.BYTES * MANY)
        c.submit(wire.copy(view(buffers[7], [2]), view(buffers[8], [2])))
        self.assertEqual(os.pread(fds[8], 7, 0), b"content")
        self.assert_few()
        for b in buffers:
            c.drop(b)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    harness.main()
