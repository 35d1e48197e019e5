"""Starts the real kopsd for tests and watches over it.

Environment: KOPS_TEST_KOPSD the daemon's binary, KOPS_TEST_CLIENT kops-client's, KOPS_TEST_BENCH kops-bench's,
KOPS_TEST_LIBKOPS libkops.so's, KOPS_TEST_QUICK=1 for builds with sanitizers (smaller counts, no figures of memory or
time), KOPS_TEST_LONG=1 for much larger counts, KOPS_TEST_SEED another seed than 1, or "random", KOPS_TEST_DEVICES other
devices than the CPU where a test does not choose, SIMULATED_GPU the folder of simulated_gpu.c where those GPUs are no
real ones, KOPS_TEST_DATA the folder of the digits.
"""
import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from . import wire

KOPSD = os.environ.get("KOPS_TEST_KOPSD", "")
KOPS_CLIENT = os.environ.get("KOPS_TEST_CLIENT", "")
KOPS_BENCH = os.environ.get("KOPS_TEST_BENCH", "")
LIBKOPS = os.environ.get("KOPS_TEST_LIBKOPS", "")
QUICK = os.environ.get("KOPS_TEST_QUICK", "") not in ("", "0")
LONG = os.environ.get("KOPS_TEST_LONG", "") not in ("", "0")
DEVICES = os.environ.get("KOPS_TEST_DEVICES", "cpu")
FIRST_DEVICE = DEVICES.split(",")[0]
ON_GPU = "gpu" in DEVICES and "SIMULATED_GPU" not in os.environ
PATIENCE_S = 200  # with what should come soon, on a machine however busy
CLEAN_ENV = ("KOPSD_", "LISTEN_", "NOTIFY_", "WATCHDOG_")


def seed_of_run():
    """Fixed by default, so that a run repeats; tests/seed.h does the same for programs in C."""
    text = os.environ.get("KOPS_TEST_SEED", "") or "1"
    return random.SystemRandom().randrange(1, 1 << 31) if text == "random" else int(text)


SEED = seed_of_run()


def count(normal, quick):
    return quick if QUICK else normal


def eventually(condition, seconds=PATIENCE_S, step=0.005):
    """Polls until condition() is true; its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(step)
    return value


def descendants(pid):
    """The children of a process, of all generations."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            for child in map(int, f.read().split()):
                found += [child, *descendants(child)]
    return found


def gpu_bytes():
    """Memory in use on all GPUs, by whomever. 0 without one."""
    if not ON_GPU:
        return 0
    mib = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True,
                         capture_output=True, text=True).stdout
    return sum(map(int, mib.split())) << 20


def client_env(socket):
    """For a kops-client on this socket: nothing of how this process is set up reaches it."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("KOPS_")}, "KOPS_SOCKET": socket}


def client_for_all(folder, socket):
    """kops-client and its environment, for users who cannot reach the build: a copy in a folder that they can."""
    libkops = os.path.realpath(LIBKOPS)
    for file, name in ((KOPS_CLIENT, "kops-client"), (libkops, "libkops.so.0")):
        shutil.copy(file, os.path.join(folder, name))
        os.chmod(os.path.join(folder, name), 0o755)
    return os.path.join(folder, "kops-client"), {**client_env(socket), "LD_LIBRARY_PATH": folder}


class Daemon:
    """One running kopsd. settings: of config.def, written to a file of its own."""

    def __init__(self, **settings):
        self.folder = tempfile.mkdtemp(prefix="kops-test-")
        os.chmod(self.folder, 0o755)
        self.socket = os.path.join(self.folder, "kopsd.sock")
        self.config = os.path.join(self.folder, "kopsd.conf")
        self.log_path = os.path.join(self.folder, "log")
        # No warm pool, also with a GPU: its filling in the background would look like a leak.
        # Estimates are for slow CPUs: on a fast one a few seconds of work would reach the usual limit.
        self.settings = {"devices": DEVICES, "pool_cache": 0, "warm_pool": 1, "max_backlog": "60min", **settings}
        self.process = None

    def write_config(self, **settings):
        self.settings.update(settings)
        with open(self.config, "w", encoding="utf-8") as f:
            for key, value in self.settings.items():
                print(key.replace("_", "-"), "=", value, file=f)

    def spawn(self, wrapper=(), stderr=None, pass_fds=(), **env):
        """wrapper: a command that runs the one which follows it. stderr: where it goes instead of the log."""
        self.write_config()
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(CLEAN_ENV)}, **env}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*wrapper, KOPSD, "--config", self.config, "--socket", self.socket],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=stderr or log, env=env,
                                            pass_fds=pass_fds)
        return self

    def spawn_in(self, cgroup_procs, **env):
        """In the cgroup of this cgroup.procs."""
        return self.spawn(["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', cgroup_procs], **env)

    def start(self, **env):
        self.spawn(**env)
        if not eventually(lambda: b" ready: " in self.log() or self.process.poll() is not None, step=0.02) \
                or self.process.poll() is not None:
            raise AssertionError("kopsd did not start:\n" + self.log().decode())
        return self

    @staticmethod
    def version():
        """How it calls itself: "kopsd VERSION"."""
        return subprocess.run([KOPSD, "--version"], capture_output=True, check=True, text=True).stdout.strip()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        try:
            with open(self.log_path, "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    def connect(self, **options):
        return wire.Client(self.socket, **options)

    def connect_as(self, uid, **options):
        """For root. Others may only be themselves."""
        os.seteuid(uid)
        try:
            return self.connect(**options)
        finally:
            os.seteuid(os.getuid())

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=PATIENCE_S):
        return self.process.wait(seconds)

    def kill_and_start(self):
        """Another one, with a log of its own."""
        self.process.kill()
        self.wait()
        self.log_path += "+"
        self.start()

    def stop(self):
        """The exit code after SIGTERM."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def reload(self, **settings):
        """SIGHUP, with changed settings; returns when they apply."""
        seen = self.log().count(b"reloaded")
        self.write_config(**settings)
        self.signal(signal.SIGHUP)
        assert eventually(lambda: self.log().count(b"reloaded") > seen), "no reload"

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What it holds

    def user_sockets(self):
        """The uids whose sockets there are."""
        folder = self.socket + ".users"
        return sorted(map(int, os.listdir(folder))) if os.path.isdir(folder) else []

    def fds(self):
        """Without those of users' sockets, which stay when the users go, and of processes that receive descriptors, of
        which some stay."""
        return len(os.listdir(f"/proc/{self.pid}/fd")) - len(self.user_sockets()) - len(descendants(self.pid))

    def maps(self):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as f:
            return sum("/memfd:" in line for line in f)

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="utf-8") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def cpu_s(self, of="stat"):
        """CPU time of the process so far."""
        with open(f"/proc/{self.pid}/{of}", encoding="utf-8") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def loop_s(self):
        """CPU time of the thread that has the loop, so far."""
        return self.cpu_s(f"task/{self.pid}/stat")

    def of_threads(self, file):
        """The words of a file that /proc has of each thread, by the thread's id."""
        words = {}
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/{file}", encoding="utf-8") as f:
                words[int(task)] = f.read().split()
        return words

    def statuses_of_threads(self, what):
        """What a line of their status says."""
        return {task: words[words.index(f"{what}:") + 1] for task, words in self.of_threads("status").items()}

    def wakeups(self):
        """Voluntary context switches of all its threads, so far."""
        return sum(map(int, self.statuses_of_threads("voluntary_ctxt_switches").values()))


SANITIZER_MARKS = (b"Sanitizer", b"runtime error:", b"this is a bug in kopsd")


class DaemonTest(unittest.TestCase):
    """One daemon per class. After each test everything that the test took is back, or the test fails."""

    settings = {}
    wrapper = ()  # a command that runs the daemon
    open_socket = False  # to other users too
    leaks_checked = True

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(**cls.settings).start(wrapper=cls.wrapper)
        cls.addClassCleanup(cls.daemon.remove)
        if cls.open_socket:
            os.chmod(cls.daemon.socket, 0o666)
        cls.control = cls.daemon.connect(name="control")
        cls.random = random.Random(SEED)

    @classmethod
    def tearDownClass(cls):
        cls.control.close()
        code = cls.daemon.stop()
        log = cls.daemon.log()
        if code != 0 or any(mark in log for mark in SANITIZER_MARKS):
            raise AssertionError(f"kopsd exited {code}; its log:\n" + log.decode(errors="replace")[-20000:])

    def holdings(self):
        s = self.control.stats()
        held = {key: s[key] for key in ("sessions", "buffers", "mapped_bytes", "pinned_bytes", "pool_bytes")}
        for d in s["devices"]:
            held[d["name"]] = (d["queued"], d["running"], d["resident_bytes"])
        held["fds"] = self.daemon.fds()
        held["maps"] = self.daemon.maps()
        return held

    def setUp(self):
        self.clients = []
        self.before = self.holdings()

    def tearDown(self):
        for c in self.clients:
            c.close()
        self.assertIsNone(self.daemon.process.poll(), "kopsd died:\n" + self.daemon.log().decode()[-10000:])
        if not self.leaks_checked:
            return
        eventually(lambda: self.holdings() == self.before)
        self.assertEqual(self.holdings(), self.before, "the test's holdings did not go")

    def client(self, **options):
        """A session that the end of the test closes."""
        c = self.daemon.connect(**options)
        self.clients.append(c)
        return c

    def refused(self, status, action, *args, **kwargs):
        """Asserts the refusal and returns it."""
        with self.assertRaises(wire.Refused) as caught:
            action(*args, **kwargs)
        self.assertEqual(caught.exception.name, status, caught.exception.message)
        self.assertGreater(len(caught.exception.message), 5)
        return caught.exception

    def assert_ended(self, c):
        """The daemon has ended this session; replies that came before are skipped."""
        with self.assertRaises(wire.Ended):
            while True:
                c.receive()

    # Jobs of a chosen length

    _rate = {}

    def slow_op(self, c, ms):
        """A gemm of about ms milliseconds on one core, whose buffers belong to c."""
        n = 64
        rate = self._rate.get(self.daemon.pid)
        if not rate:
            a = c.import_new(n * n * 4)
            y = c.import_new(n * n * 4)
            v = [wire.view(a, [n, n]), wire.view(a, [n, n]), wire.view(y, [n, n])]
            rate = n / min(c.submit(wire.gemm(*v, kernel="reference"))["compute_us"] for _ in range(5))
            self._rate[self.daemon.pid] = rate
            c.drop(a)
            c.drop(y)
        k = max(1, int(rate * ms * 1000))
        a = c.import_new(4096)
        y = c.import_new(n * n * 4)
        # Strides of 0 make K as long as needed over a small buffer.
        return wire.gemm(wire.view(a, [n, k], [0, 0]), wire.view(a, [k, n], [0, 0]), wire.view(y, [n, n]),
                         kernel="reference")

    def occupy(self, ms, jobs=2):
        """A session whose jobs keep the CPU device from starting others of this user for about ms in all; (session, ids).

        HIGH, so that they give way to none that is not."""
        c = self.client(name="occupier")
        op = self.slow_op(c, ms / jobs * (3 if QUICK else 1))
        ids = [c.start_submit(op, priority=wire.HIGH) for _ in range(jobs)]
        c.stats()  # sessions are not served in the order in which they send; now the jobs are there
        return c, ids

    def assert_busy(self):
        """The jobs of occupy() still run."""
        self.assertTrue(self.control.any_running())


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def main():
    print(f"seed {SEED}; repeat with KOPS_TEST_SEED={SEED}", file=sys.stderr, flush=True)
    if not os.access(KOPSD, os.X_OK):
        sys.exit("KOPS_TEST_KOPSD must name the daemon's binary; run through ctest")
    if ON_GPU and not os.path.exists("/proc/driver/nvidia/version"):
        print("skipped: there is no NVIDIA GPU here")
        sys.exit(77)
    unittest.main(verbosity=2)
