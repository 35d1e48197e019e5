"""Starting, draining, reloading and idling of the daemon; its standard descriptors, and calls that go on failing."""
import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from support import harness, wire
from support.harness import Daemon, DaemonTest, count, eventually
from support.wire import view

# A job that outlasts every wait of a test, and the settings that allow it.
ENDLESS_MS = 1500 * harness.PATIENCE_S
ENDLESS = {"max_run_time": "1440min", "max_backlog": "60min"}

LOST = b" lines lost: "
FAILING_CALLS = os.environ.get("KOPS_TEST_FAILING_CALLS", "")
EXPORTER = os.environ.get("KOPS_TEST_EXPORTER", "")


class Life(unittest.TestCase):
    """A daemon of its own for each test."""

    slow_op = DaemonTest.slow_op
    _rate = DaemonTest._rate

    def start(self, env={}, **settings):
        self.daemon = Daemon(**settings)
        self.addCleanup(self.daemon.remove)
        self.daemon.start(**env)
        return self.daemon

    def connect(self, **options):
        c = self.daemon.connect(**options)
        self.addCleanup(c.close)
        return c

    def assert_stopped(self, code=0, seconds=harness.PATIENCE_S):
        self.assertEqual(self.daemon.wait(seconds), code, self.daemon.log().decode())
        self.assertFalse(os.path.exists(self.daemon.socket))
        for mark in harness.SANITIZER_MARKS:
            self.assertNotIn(mark, self.daemon.log())

    def statuses(self, c, ids):
        return [wire.STATUS_NAME[c.wait_any(i)["status"]] for i in ids]


def core_pattern():
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as f:
        return f.read().strip()


class WithoutRoot(Life):
    """A user's own kopsd: nobody names its socket."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="kops-user-")
        self.addCleanup(folder.cleanup)
        self.folder, self.user = folder.name, {}
        if os.geteuid() == 0:
            os.chown(self.folder, 65534, 65534)
            self.user = {"user": 65534, "group": 65534, "extra_groups": []}
            for program in (harness.KOPSD, harness.KOPS_CLIENT):
                if subprocess.run(["test", "-x", program], **self.user).returncode != 0:
                    self.skipTest(f"{program} is where other users cannot run it")
        self.env = {**harness.client_env("unused"), "XDG_RUNTIME_DIR": self.folder, "HOME": self.folder}
        del self.env["KOPS_SOCKET"]

    def run_client(self, *args, **options):
        return subprocess.run([harness.KOPS_CLIENT, *args], env={**self.env, **options.pop("env", {})}, capture_output=True,
                              text=True, timeout=600, **{**self.user, **options})

    def test_clients_find_it(self):
        kopsd = subprocess.Popen([harness.KOPSD, "--config", os.devnull, "--devices", "cpu"], env=self.env, cwd="/",
                                 stderr=subprocess.PIPE, text=True, **self.user)
        self.addCleanup(kopsd.stderr.close)
        self.addCleanup(kopsd.kill)
        for line in kopsd.stderr:
            if " ready: " in line:
                break
        self.assertEqual(os.listdir(self.folder).count("kopsd.sock"), 1)
        r = self.run_client("devices")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("cpu", r.stdout)
        self.assertEqual(self.run_client("ping", env={"KOPS_SOCKET": "/nowhere"}).returncode, 3)  # what is said comes first
        if self.user:  # it is nobody's but the folder's owner's
            r = subprocess.run([harness.KOPS_CLIENT, "ping"], env=self.env, capture_output=True, text=True, timeout=600)
            self.assertIn("/run/kopsd/kopsd.sock", r.stderr + "/run/kopsd/kopsd.sock" * (r.returncode == 0))
        kopsd.terminate()
        self.assertEqual(kopsd.wait(harness.PATIENCE_S), 0)
        self.assertNotIn("kopsd.sock", os.listdir(self.folder))

    def test_without_one_the_hosts_is_asked(self):
        r = self.run_client("ping")
        self.assertTrue(r.returncode == 0 or "/run/kopsd/kopsd.sock" in r.stderr, r.stderr)

    def test_what_settings_say_comes_first(self):
        def shown(*args, **env):
            r = subprocess.run([harness.KOPSD, "--config", os.devnull, "--check-config", *args], env={**self.env, **env},
                               capture_output=True, text=True, check=True, **self.user)
            return next(line for line in r.stdout.splitlines() if line.startswith("socket = "))
        self.assertEqual(shown(), f"socket = {self.folder}/kopsd.sock # XDG_RUNTIME_DIR")
        self.assertEqual(shown("--socket", "/tmp/x.sock"), "socket = /tmp/x.sock # --socket")
        self.assertEqual(shown(KOPSD_SOCKET="/tmp/y.sock"), "socket = /tmp/y.sock # KOPSD_SOCKET")
        self.assertEqual(shown(XDG_RUNTIME_DIR="relative"), "socket = /run/kopsd/kopsd.sock # default")


@unittest.skipIf(harness.QUICK, "sanitizers have no core dumps")
@unittest.skipIf(core_pattern() not in ("core", "core.%p"), "core dumps go elsewhere on this host")
class CoreDumps(Life):
    marker = bytes(range(7, 256, 2)) * 32
    packed = struct.pack("<f", 12345.678) * 64  # how libraries pack a matrix of one number does not change it

    def place_everywhere(self, c):
        """In memory that is imported, lent and RESIDENT."""
        n = len(self.marker) // 2
        imported, lent, resident = c.import_new(2 * n, self.marker), c.lend(2 * n), c.resident(2 * n)
        for to in (lent, resident):
            c.submit(wire.copy(view(imported, [n], dtype=wire.F16), view(to, [n], dtype=wire.F16)))

    def multiply(self, c):
        """By OpenBLAS, whose copies of operands are in memory of its own."""
        n = 300
        a, y = c.import_new(4 * n * n, self.packed[:4] * n * n), c.import_new(4 * n * n)
        c.submit(wire.gemm(view(a, [n, n]), view(a, [n, n]), view(y, [n, n]), kernel="openblas"))

    def dump(self, **settings):
        daemon = Daemon(**settings)
        self.addCleanup(daemon.remove)
        daemon.spawn(["/bin/sh", "-c", 'ulimit -c unlimited && cd "$0" && exec "$@"', daemon.folder])
        self.assertTrue(eventually(lambda: b" ready: " in daemon.log()))
        with daemon.connect() as c:
            self.place_everywhere(c)
            self.multiply(c)
            daemon.signal(signal.SIGABRT)
            self.assertEqual(daemon.wait(), -signal.SIGABRT)
        (core,) = [name for name in os.listdir(daemon.folder) if name.startswith("core")]
        with open(os.path.join(daemon.folder, core), "rb") as f:
            return f.read()

    def test_matrices_stay_out_unless_they_are_wanted(self):
        core = self.dump()
        self.assertIn(b"kopsd", core)
        self.assertEqual(core.count(self.marker), 0)
        self.assertEqual(core.count(self.packed), 0)
        core = self.dump(dump_matrices=1)
        self.assertEqual(core.count(self.marker), 3)
        self.assertGreater(core.count(self.packed), 300 * 300 // 64)


class Draining(Life):
    def test_running_jobs_finish_and_queued_ones_are_refused(self):
        self.start()
        c = self.connect()
        op = self.slow_op(c, 300)
        ids = [c.start_submit(op, queue=q) for q in range(6)]
        c.stats()
        began = time.monotonic()
        self.daemon.signal(signal.SIGTERM)
        statuses = self.statuses(c, ids)
        self.assertEqual(statuses[0], "OK")
        self.assertEqual(statuses[2:], ["SHUTDOWN"] * 4)
        self.assertGreater(time.monotonic() - began, 0.1)
        self.assert_stopped()
        with self.assertRaises(wire.Ended):
            c.receive()

    def test_submits_while_draining(self):
        self.start(drain_timeout="10min", **ENDLESS)
        c, holder = self.connect(), self.connect()
        op = self.slow_op(c, 200)
        first = c.start_submit(op)
        holder.start_submit(self.slow_op(holder, ENDLESS_MS))  # kopsd drains until this session has gone
        for each in (c, holder):
            self.assertGreater(each.stats()["devices"][0]["running"], 0)
        self.daemon.signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: b"stopping" in self.daemon.log()))
        with self.assertRaises(wire.Refused) as caught:
            c.submit(op)
        self.assertEqual(caught.exception.name, "SHUTDOWN")
        with self.assertRaises((FileNotFoundError, ConnectionRefusedError)):
            with self.daemon.connect():
                pass
        c.wait(first)
        holder.close()
        self.assert_stopped()

    def test_drain_timeout(self):
        self.start(drain_timeout="200ms", **ENDLESS)
        c = self.connect()
        c.start_submit(self.slow_op(c, ENDLESS_MS))
        c.stats()
        self.daemon.signal(signal.SIGTERM)
        self.assert_stopped()
        self.assertIn(b"drain-timeout", self.daemon.log())

    def test_drain_timeout_with_a_canary_behind_the_job(self):
        """The health check's own job must not make the exit wait for the job before it."""
        self.start({"WATCHDOG_USEC": "300000"}, drain_timeout="200ms", **ENDLESS)
        c = self.connect()
        c.start_submit(self.slow_op(c, ENDLESS_MS))
        # The watchdog has asked for another by then.
        self.assertTrue(eventually(lambda: c.stats()["devices"][0]["canary_age_us"] > 500_000))
        self.assertEqual(c.stats()["devices"][0]["running"], 1)
        self.daemon.signal(signal.SIGTERM)
        self.assert_stopped()

    def test_with_messages_half_read(self):
        """Long ones are read in several turns: the sessions end between them."""
        for _ in range(count(5, 2)):
            self.start(drain_timeout="0")
            clients = [self.connect() for _ in range(40)]
            for c in clients:
                c.import_new(4096)
                c.sock.setblocking(False)
            short, long = (wire.encode("Request", {"id": len(ops), "submit": {"ops": ops}}) for ops in (
                [wire.copy(view(1, [4]), view(1, [4], offset=64))], [wire.gemm(*[view(1, [4, 4], [4, 1])] * 3)] * 64))
            for left in reversed(range(30)):
                if left == 0:
                    self.daemon.signal(signal.SIGTERM)
                for c in clients:
                    with contextlib.suppress(OSError, wire.Ended):
                        c.send_bytes(short)
                        c.send_bytes(long)
            self.assert_stopped()

    def test_a_client_that_never_reads(self):
        self.start(drain_timeout="500ms")
        c = self.connect()
        c.sock.setblocking(False)
        try:
            for _ in range(100000):
                c.start("describe", {})
        except BlockingIOError:
            pass
        self.daemon.signal(signal.SIGTERM)
        self.assert_stopped()

    def test_idle(self):
        self.start(drain_timeout="10min")
        c = self.connect()
        silent = self.connect(hello=False)
        self.daemon.signal(signal.SIGTERM)
        self.assert_stopped()
        for each in (c, silent):
            with self.assertRaises(wire.Ended):
                each.receive()

    def test_twice(self):
        self.start(drain_timeout="10min")
        c = self.connect()
        job = c.start_submit(self.slow_op(c, 300))
        c.stats()
        self.daemon.signal(signal.SIGTERM)
        self.daemon.signal(signal.SIGINT)
        time.sleep(0.05)
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.statuses(c, [job]), ["OK"])
        self.assert_stopped()

    def test_while_starting(self):
        for delay in [0, 0.01, 0.03, 0.1, 0.3]:
            self.daemon = Daemon().spawn()
            self.addCleanup(self.daemon.remove)
            time.sleep(delay)
            self.daemon.signal(signal.SIGTERM)
            # Before its handler is there the signal itself ends it.
            self.assertIn(self.daemon.wait(), (0, -signal.SIGTERM), self.daemon.log().decode())

    def test_with_buffers_under_way(self):
        for _ in range(count(20, 3)):
            self.start(drain_timeout="10min")
            c = self.connect()
            for _ in range(20):
                c.start_alloc(1 << 20)
                c.start_alloc(1 << 20, wire.RESIDENT)
            self.daemon.signal(signal.SIGTERM)
            self.assert_stopped()


class Signals(Life):
    sent = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1}
    own = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

    def test_only_the_loop_takes_what_others_send(self):
        """A thread that begins or ends as a signal comes could lose it, and work is not to be interrupted. But each
        thread that crashes tells whose job it had."""
        self.start({"OPENBLAS_NUM_THREADS": "1"})  # its other threads are there before main()
        c = self.connect()
        n = 1 << 20
        x = c.lend(4 * n)  # a worker makes its memory
        c.submit(wire.add(view(x, [n]), view(x, [n]), view(x, [n])))  # by more threads than the device's
        blocked = {task: int(mask, 16) for task, mask in self.daemon.statuses_of_threads("SigBlk").items()}
        loop = blocked.pop(self.daemon.pid)
        self.assertGreaterEqual(len(blocked), 2)
        self.assertEqual({s for s in self.sent | self.own if loop >> (s - 1) & 1}, set())
        for mask in blocked.values():
            self.assertEqual({s for s in self.sent if not mask >> (s - 1) & 1}, set())
            if not harness.QUICK:  # sanitizers have threads of their own
                self.assertEqual({s for s in self.own if mask >> (s - 1) & 1}, set())


class Logging(unittest.TestCase):
    """The log of a whole life, a reload and an end included, in what stderr may be."""

    def log_of_a_life(self, stderr, **env):
        daemon = Daemon(log_level=7)
        self.addCleanup(daemon.remove)
        daemon.write_config()
        process = subprocess.Popen([harness.KOPSD, "--config", daemon.config, "--socket", daemon.socket], stderr=stderr,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, **env})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(eventually(lambda: self.answers(daemon)))
        daemon.write_config(devices="auto")
        for number in (signal.SIGHUP, signal.SIGTERM):
            process.send_signal(number)
        self.assertEqual(process.wait(60), 0)

    @staticmethod
    def answers(daemon):
        try:
            with daemon.connect() as c:
                c.ping()
        except (FileNotFoundError, ConnectionRefusedError):  # not yet
            return False
        return True

    def lines(self, end):
        os.set_blocking(end, False)
        lines = os.read(end, 1 << 16).decode().splitlines()
        self.assertGreater(len(lines), 3)
        self.assertIn("ready: ", "".join(lines))
        return lines

    def test_on_a_terminal(self):
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        self.log_of_a_life(slave)
        for line in self.lines(master):
            self.assertRegex(line, "^(error|warning|notice|info|debug): [^<]")

    def test_in_the_journal(self):
        """A pipe that is named as the journal's stream is named."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        stream = os.fstat(writer)
        self.log_of_a_life(writer, JOURNAL_STREAM=f"{stream.st_dev}:{stream.st_ino}")
        for line in self.lines(reader):
            self.assertRegex(line, "^<[3-7]>[^<]")


class Starting(Life):
    def run_kopsd(self, *args, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(harness.CLEAN_ENV)}
        return subprocess.run([harness.KOPSD, *args], env={**clean, **env}, capture_output=True, text=True,
                              timeout=600)

    def test_stale_socket_is_replaced(self):
        d = self.start()
        d.process.kill()
        d.process.wait()
        self.assertTrue(os.path.exists(d.socket))
        d.process = None
        os.unlink(d.log_path)
        d.start()
        self.connect().ping()
        d.signal(signal.SIGTERM)
        self.assert_stopped()

    def test_live_socket_is_refused(self):
        d = self.start()
        r = self.run_kopsd("--config", d.config, "--socket", d.socket)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("another kopsd is listening", r.stderr)
        self.connect().ping()
        d.signal(signal.SIGTERM)
        self.assert_stopped()

    def test_live_sockets_of_other_types_are_refused(self):
        """Only a refused connection shows that nobody listens."""
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            daemon = Daemon()
            self.addCleanup(daemon.remove)
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.bind(daemon.socket)
                if kind == socket.SOCK_STREAM:
                    s.listen()
                inode = os.stat(daemon.socket).st_ino
                self.assertEqual(daemon.spawn().wait(), 1)
                self.assertIn(b"a socket exists there and may be in use", daemon.log())
                self.assertEqual(os.stat(daemon.socket).st_ino, inode)

    def test_a_full_socket_is_alive(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.bind(daemon.socket)
            s.listen(0)
            waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
            for w in waiting:
                w.setblocking(False)
                w.connect_ex(daemon.socket)
            self.assertEqual(daemon.spawn().wait(), 1)
            self.assertIn(b"another kopsd is listening", daemon.log())
            for w in waiting:
                w.close()

    def test_two_started_together_on_a_stale_path(self):
        for _ in range(count(20, 5)):
            first = Daemon()
            self.addCleanup(first.remove)
            first.start()
            first.signal(signal.SIGKILL)
            first.wait()
            os.unlink(first.log_path)  # so that "ready" there is said by the next
            first.spawn()
            second = Daemon()
            self.addCleanup(second.remove)
            own, second.socket = second.socket, first.socket
            second.spawn()
            self.assertTrue(eventually(lambda: any(b" ready: " in d.log() for d in (first, second)) and
                                       any(d.process.poll() is not None for d in (first, second)), 30))
            loser, winner = (first, second) if first.process.poll() is not None else (second, first)
            self.assertEqual(loser.process.returncode, 1)
            self.assertRegex(loser.log(), b"another kopsd is listening")
            with winner.connect() as c:
                c.ping()
            self.assertEqual(winner.stop(), 0)
            self.assertFalse(os.path.exists(first.socket + ".lock"))

    def test_a_lock_that_cannot_be_had(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        os.symlink("/etc/passwd", daemon.socket + ".lock")
        self.assertEqual(daemon.spawn().wait(), 1)
        self.assertIn(b"open() of its lock file", daemon.log())

    def test_something_else_at_the_path(self):
        d = self.start()
        path = os.path.join(d.folder, "file")
        with open(path, "w", encoding="ascii") as f:
            f.write("precious")
        r = self.run_kopsd("--config", d.config, "--socket", path)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("not a socket", r.stderr)
        with open(path, encoding="ascii") as f:
            self.assertEqual(f.read(), "precious")

    def test_no_directory_at_the_path(self):
        d = self.start()
        r = self.run_kopsd("--config", d.config, "--socket", os.path.join(d.folder, "none", "kopsd.sock"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("No such file or directory; create its directory, or choose another --socket", r.stderr)

    def test_refusals(self):
        d = self.start()
        other = os.path.join(d.folder, "other.sock")
        base = ["--config", d.config, "--socket", other]
        wrong_settings = [(["--devices", "tpu"], "tpu"), (["--devices", ",,,"], "no device"),
                          (["--devices", "cpu,cpu"], "cpu twice"), (["--devices", "auto,cpu"], "cpu twice"),
                          (["--max-jobs", "0"], "max-jobs"), (["--what"], "--what")]
        for args, words in wrong_settings:
            for more in [], ["--check-config"]:
                r = self.run_kopsd(*base, *args, *more)
                self.assertEqual(r.returncode, 2, args)
                self.assertIn(words, r.stderr)
            self.assertFalse(os.path.exists(other), args)
        # A GPU may come back by itself.
        r = self.run_kopsd(*base, "--devices", "gpu99")
        self.assertEqual(r.returncode, 1)
        self.assertIn("gpu99", r.stderr)
        self.assertFalse(os.path.exists(other + ".users"))
        # What is not a socket does not go by itself.
        r = self.run_kopsd("--config", d.config, "--socket", d.config)
        self.assertEqual(r.returncode, 2)
        self.assertIn("not a socket", r.stderr)
        r = self.run_kopsd("--config", d.config, "--socket", os.path.join(d.folder, "no", "such", "dir"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("No such file", r.stderr)

    def test_socket_mode(self):
        d = self.start()
        self.assertEqual(os.stat(d.socket).st_mode & 0o777, 0o660)

    @staticmethod
    def fork_kopsd(d, listener):
        """As a service manager starts it, with the listening socket; its pid."""
        pid = os.fork()
        if pid == 0:
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)
            log = os.open(d.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 2)
            os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = "1", str(os.getpid())
            os.execv(harness.KOPSD, [harness.KOPSD, "--config", d.config])
        return pid

    def test_inherited_socket(self):
        """As a service manager passes it; it outlives the daemon."""
        d = Daemon()
        self.daemon = d
        self.addCleanup(d.remove)
        d.write_config()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(d.socket)
        listener.listen(8)
        for _ in range(2):
            waiting = self.connect(hello=False)  # before there is a daemon
            pid = self.fork_kopsd(d, listener)
            waiting.hello()
            self.assertEqual(waiting.ping()["devices"], 1)
            self.assertEqual(d.user_sockets(), [os.geteuid()])
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(os.waitpid(pid, 0)[1], 0, d.log().decode())
            self.assertTrue(os.path.exists(d.socket))

    def test_wrong_settings_are_told_to_those_who_wait(self):
        """A service manager starts kopsd for them again and again, and each time it ends at once."""
        d = Daemon(log_level="loud")
        self.addCleanup(d.remove)
        d.write_config()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(d.socket)
        listener.listen(8)
        client = subprocess.Popen([harness.KOPS_CLIENT, "ping", "--socket", d.socket, "--timeout", "3s"], stderr=subprocess.PIPE,
                                  text=True)
        self.addCleanup(client.stderr.close)
        starts = 0
        while client.poll() is None:
            if select.select([listener], [], [], 0.1)[0]:
                starts += 1
                pid = self.fork_kopsd(d, listener)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 2, d.log().decode())
        self.assertIn(client.returncode, (3, 4))  # refused, or not answered yet by the next one
        self.assertIn("cannot start: its configuration is invalid; see its log", client.stderr.read())
        self.assertGreater(starts, 1)  # it is tried again until the client's timeout: somebody may be mending them

    def test_the_folder_for_what_is_at_work(self):
        """systemd tells it beside that for users' sockets, in an order of its own."""
        for users_first in (True, False):
            self.daemon = d = Daemon()
            self.addCleanup(d.remove)
            folders = [d.socket + ".users", os.path.join(d.folder, "state-of.users")]
            for folder in folders:
                os.mkdir(folder, 0o700)
            d.start(RUNTIME_DIRECTORY=":".join(folders if users_first else folders[::-1]))
            self.assertEqual(os.listdir(folders[1]), ["kopsd.sock.running"])
            self.ping_by_client()
            self.assertEqual(os.listdir(folders[0]), [str(os.geteuid())])
            d.signal(signal.SIGTERM)
            self.assert_stopped()

    def test_a_suspect_runs_alone_but_takes_turns(self):
        """What ran at a death runs with no other beside it. Others have their turns all the same, and once its client has
        gone it is dropped."""
        def start_long(c):
            c.start_submit(wire.long_sum(c.import_new(4096), c.import_new(4096), 1 << 40))  # of some minutes

        d = self.start(max_backlog="60min", max_run_time="1440min")  # by what a busy machine shows of its speed, it takes long
        c = self.connect()
        start_long(c)
        self.assertTrue(eventually(c.any_running))
        time.sleep(0.3)  # less does not count at a death from outside
        a = c.import_new(4096)
        for _ in range(5):  # it is paused, and goes on
            c.submit(wire.copy(view(a, [1]), view(a, [1], offset=64)), queue=1)
        self.assertTrue(eventually(c.any_running))
        d.kill_and_start()
        self.assertIn(b"was running when kopsd crashed", d.log())
        c, other = self.connect(), self.connect()
        start_long(c)
        a = other.import_new(4096)
        for _ in range(count(20, 3)):
            other.submit(wire.copy(view(a, [1]), view(a, [1], offset=64)))
        suspect, = [s["oldest"] for s in other.list_sessions() if s["oldest"]]
        self.assertLess(suspect["parts_done"], suspect["parts"] / 10)
        c.close()
        self.assertTrue(eventually(lambda: not other.any_running()))

    # Sockets of users beside it

    def ping_by_client(self):
        ping = subprocess.run([harness.KOPS_CLIENT, "ping"], env=harness.client_env(self.daemon.socket), timeout=600,
                              check=True, capture_output=True)
        self.assertIn(b"healthy", ping.stdout)

    def test_users_sockets_end_with_the_daemon(self):
        d = self.start()
        self.ping_by_client()
        self.assertEqual(d.user_sockets(), [os.geteuid()])
        d.signal(signal.SIGTERM)
        self.assert_stopped()
        self.assertFalse(os.path.exists(d.socket + ".users"))

    def test_users_sockets_of_a_daemon_that_was_killed(self):
        """They are in nobody's way; what is no socket stays."""
        d = self.start()
        self.ping_by_client()
        d.signal(signal.SIGKILL)
        d.wait()
        self.assertEqual(d.user_sockets(), [os.geteuid()])
        notes = d.socket + ".users/notes"
        with open(notes, "w", encoding="utf-8") as f:
            f.write("not a socket")
        os.unlink(d.log_path)  # it says that the first was ready
        d.start()
        self.assertEqual(os.listdir(d.socket + ".users"), ["notes"])
        os.unlink(notes)
        for _ in range(2):
            self.ping_by_client()
        self.assertEqual(d.user_sockets(), [os.geteuid()])

    def test_no_users_socket_in_the_place_of_something_else(self):
        d = self.daemon_of_later()
        mine = f"{d.socket}.users/{os.geteuid()}"
        os.mkdir(os.path.dirname(mine))
        with open(mine, "w", encoding="utf-8") as f:
            f.write("not a socket")
        d.start()
        for _ in range(2):
            self.ping_by_client()
        with open(mine, encoding="utf-8") as f:
            self.assertEqual(f.read(), "not a socket")

    def assert_no_users_sockets(self, d, why):
        d.start()
        self.assertIn(why, d.log())
        for _ in range(2):
            self.ping_by_client()
        self.assertEqual(d.user_sockets(), [])

    def daemon_of_later(self):
        self.daemon = Daemon(log_level=6)
        self.addCleanup(self.daemon.remove)
        return self.daemon

    def test_no_users_sockets_where_others_may_write(self):
        """They could be anybody's."""
        d = self.daemon_of_later()
        os.chmod(d.folder, 0o1777)
        self.assert_no_users_sockets(d, b"other users may write to the socket's directory")

    def test_no_users_sockets_where_something_else_is(self):
        d = self.daemon_of_later()
        with open(d.socket + ".users", "w", encoding="utf-8"):
            pass
        self.assert_no_users_sockets(d, b"Not a directory")

    def test_reload(self):
        d = self.start(max_buffers=5)
        c = self.connect()
        self.assertEqual(c.welcome["max_buffers"], 5)
        d.reload(max_buffers=6)
        self.assertEqual(self.connect().welcome["max_buffers"], 6)
        d.reload(devices="auto", cpu_threads=1)
        self.assertIn(b"warning: changed settings take effect only after a restart (systemctl restart kopsd): "
                      b"devices, cpu-threads\n",
                      d.log())
        seen = len(d.log())
        with open(d.config, "a", encoding="ascii") as f:
            f.write("nonsense = 1\n")
        d.signal(signal.SIGHUP)
        self.assertTrue(eventually(lambda: b"not reloaded" in d.log()[seen:]))
        self.assertIn(b"kopsd.conf:", d.log()[seen:])
        c.ping()
        self.assertEqual(self.connect().welcome["max_buffers"], 6)

    def slow_settings(self, d, **settings):
        """A fragment that takes a while to read, as names of users may: a second, of comments."""
        os.makedirs(d.config + ".d", exist_ok=True)
        with open(d.config + ".d/slow.conf", "w", encoding="ascii") as f:
            f.write("#\n" * count(4_000_000, 400_000))
            for key, value in settings.items():
                print(key.replace("_", "-"), "=", value, file=f)

    def test_nobody_waits_for_settings_that_are_slow_to_read(self):
        d = self.start(max_buffers=5)
        c = self.connect()
        self.slow_settings(d, max_buffers=6)
        d.signal(signal.SIGHUP)
        began = time.monotonic()
        c.ping()
        self.assertEqual(self.connect().welcome["max_buffers"], 5)
        waited = time.monotonic() - began
        d.signal(signal.SIGHUP)  # it has them read again
        self.assertTrue(eventually(lambda: d.log().count(b"reloaded") == 2))
        self.assertLess(waited, 0.5 * (time.monotonic() - began))
        self.assertEqual(self.connect().welcome["max_buffers"], 6)

    def test_a_stop_does_not_wait_for_settings(self):
        d = self.start()
        self.slow_settings(d)
        d.signal(signal.SIGHUP)
        d.signal(signal.SIGTERM)
        self.assertEqual(d.process.wait(30), 0)
        self.assertNotIn(b"reloaded", d.log())


@unittest.skipIf(harness.QUICK, "figures of time and memory are those of builds without sanitizers")
class Idle(Life):
    def test_no_wakeups(self):
        self.start()
        c = self.connect()
        a = c.import_new(4096)
        c.submit(wire.add(*[view(a, [4])] * 3))
        c.lend(4096)
        time.sleep(0.5)
        before = self.daemon.wakeups()
        time.sleep(2)
        self.assertEqual(self.daemon.wakeups() - before, 0)

    def test_memory(self):
        """Four of these MiB are OpenBLAS's code, as the check at the start computes by each kernel."""
        self.start()
        c = self.connect()
        c.ping()
        self.assertLessEqual(self.daemon.rss_bytes(), 11 << 20)

    def test_memory_of_a_session(self):
        self.start()
        sessions = [self.connect() for _ in range(100)]
        before = self.daemon.rss_bytes()
        n = 900
        for _ in range(n):
            sessions.append(self.connect())
        self.assertLessEqual((self.daemon.rss_bytes() - before) / n, 32 << 10)
        for c in sessions:
            c.close()
        self.assertTrue(eventually(lambda: self.connect().stats()["sessions"] < 10))


class Spawned(Life):
    """Whose log does not say when it serves, or which never does."""

    def spawn(self, wrapper=(), env={}, stderr=None, **settings):
        self.daemon = Daemon(**settings)
        self.addCleanup(self.daemon.remove)
        self.daemon.spawn(wrapper, stderr, **env)

    def connect(self):
        """A session, as soon as the daemon serves."""
        def try_it():
            try:
                return self.daemon.connect()
            except (FileNotFoundError, ConnectionRefusedError):
                return None
        c = eventually(try_it, step=0.02)
        self.assertIsNotNone(c, "kopsd does not serve")
        self.addCleanup(c.close)
        return c


class StalledLog(Spawned):
    """What reads stderr has stopped. No client notices, nor does the daemon's end."""

    def flood(self, c, lines):
        for _ in range(lines):
            with self.assertRaises(wire.Refused):
                c.drop(4711)  # a line at level debug

    def read_all(self, reader):
        reader.setblocking(False) if isinstance(reader, socket.socket) else os.set_blocking(reader, False)
        parts = []
        try:
            while part := reader.recv(1 << 16) if isinstance(reader, socket.socket) else os.read(reader, 1 << 16):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts)

    def check(self, reader, writer):
        """Both ends of what stderr is; few lines fit in."""
        self.spawn(stderr=writer, log_level=7)
        c = self.connect()
        for _ in range(3):
            self.flood(c, 500)
            c.ping()
        text = self.read_all(reader)
        self.assertNotIn(LOST, text)
        self.flood(c, 1)
        text = self.read_all(reader)
        self.assertRegex(text, rb"^\n?warning: \d+ lines lost: .*\n(debug: .*\n)+$")
        self.flood(c, 1000)
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)

    def test_pipe(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.check(reader, writer)
        # The description that the daemon shared with us is as it was.
        self.assertTrue(os.get_blocking(writer))
        os.close(writer)

    def test_socket(self):
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            self.check(reader, writer)
            self.assertTrue(os.get_blocking(writer.fileno()))


class Closed(Spawned):
    """Started without some of descriptors 0 to 2."""

    def targets(self):
        return [os.readlink(f"/proc/{self.daemon.pid}/fd/{fd}") for fd in range(3)]

    def check(self, how, *closed):
        self.spawn(["/bin/sh", "-c", f'exec "$0" "$@" {how}'])
        c = self.connect()
        buffer = c.import_new(4096)
        c.drop(buffer)
        for fd in closed:
            self.assertEqual(self.targets()[fd], "/dev/null")
        self.assertEqual(self.daemon.stop(), 0)

    def test_input(self):
        self.check("<&-", 0)

    def test_error(self):
        self.check("2>&-", 2)

    def test_all(self):
        self.check("<&- >&- 2>&-", 0, 1, 2)

    @unittest.skipUnless(EXPORTER, "there is no kops-exporter")
    def test_exporter(self):
        p = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', EXPORTER, "--listen", "127.0.0.1:0"])
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)

        def listens():
            try:
                fds = {int(fd): os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{p.pid}/fd")}
            except FileNotFoundError:
                return None  # closed meanwhile
            return fds if any(name.startswith("socket:") for name in fds.values()) else None
        fds = eventually(listens)
        self.assertEqual([fds[fd] for fd in range(3)], ["/dev/null"] * 3)


@unittest.skipUnless(FAILING_CALLS, "a sanitizer's library has to be loaded first")
class FailingCalls(Spawned):
    """Simulated by a library that is loaded into kopsd."""

    def test_connections_cannot_be_accepted(self):
        path = os.path.join(os.path.dirname(FAILING_CALLS), f"accept-fails-{os.getpid()}")
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        self.spawn(env={"LD_PRELOAD": FAILING_CALLS, "KOPS_FAIL_ACCEPT": path})
        served = self.connect()
        with open(path, "wb"):
            pass
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(self.daemon.socket)
            self.assertTrue(eventually(lambda: os.path.getsize(path) >= 1))
            began, tries = time.monotonic(), os.path.getsize(path)
            self.assertTrue(eventually(lambda: os.path.getsize(path) >= tries + 5))
            self.assertGreater(time.monotonic() - began, 0.35, "it spins")
            served.ping()
            os.unlink(path)
        self.connect().ping()
        self.assertEqual(self.daemon.log().count(b"cannot accept connections: Cannot allocate memory"), 1)

    def test_the_lock_cannot_be_taken(self):
        for number in (errno.ENOLCK, errno.EIO):
            self.spawn(env={"LD_PRELOAD": FAILING_CALLS, "KOPS_FAIL_FLOCK": str(number)})
            self.assertEqual(self.daemon.wait(), 1)
            self.assertIn(f"flock() of its lock file: {os.strerror(number)}".encode(), self.daemon.log())
            self.assertNotIn(b"another kopsd", self.daemon.log())


if __name__ == "__main__":
    harness.main()
