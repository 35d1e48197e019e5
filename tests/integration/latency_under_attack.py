"""What one user does to the latency of another.

A victim (victim.c) measures its round trips alone, then under each attack by processes of another uid. Fails where a
request of the victim is refused, or its p99 under attack is above

    FACTOR x its quiet p99 of that round trip + the longest op or part of one that the attack sends

The quiet p99 is the larger of two: alone, and beside as many processes that burn CPU without kopsd, as the attackers do.
What is above its bound is measured again, TRIES times in all, with a third one: beside the same attack on another kopsd.
CPUs that are woken, caches and a host that is shared cost latency whoever is attacked; what an attack does to this daemon
stays.
The op takes as long as it does beside the attack, whose processes share the memory's rate with it. RESIDENT memory that
all worker threads zero for others shares it too, and has more: ZEROING_MS.

That holds where the victim has a core of its own: on machines with CORES cores. On smaller ones the attackers' and
kopsd's work alone costs latency, which no daemon can give back. There the quiet p99 is the largest of any round trip,
since a core that is taken delays whatever waits for it, with SHARED_ALLOWANCE_MS; and p50 is judged too, with
P50_ALLOWANCE_MS. Needs root, to play two users.

    latency_under_attack.py [--seconds S] [--attackers N] [--factor F] [--allowance MS] [--list] [ATTACK...]

Environment: KOPS_TEST_KOPSD, and KOPS_TEST_VICTIM the victim's binary.
"""
import argparse
import contextlib
import dataclasses
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Callable

from support import harness, wire
from support.flood import HELLO, Flood, request
from support.wire import HIGH, LOW, RESIDENT, view

VICTIM = os.environ.get("KOPS_TEST_VICTIM", "")
VICTIM_UID, ATTACKER_UID = 61001, 61002
KINDS = ("gemm", "ping", "connect", "alloc", "resident")
CORES = 8
GIVES_UP_S, DIES_S = 60, 30  # the victim (its calls do after 20 s), an attacker
OP_S = 0.2
ZEROING_MS = 10
TRIES = 3
P50_SAMPLES, SHARED_ALLOWANCE_MS, P50_ALLOWANCE_MS = 100, 0.5, 5  # slices of the kernel's scheduler
LIMITS = {"max_sessions_per_uid": 1024, "pool_cache": "1G", "hello_timeout": 5000}
SESSIONS = []  # of an attacker at most, set by main(): beyond the limit all attacks would be the one of refused connections
OPS = 64
OWN_CORE = []  # how the victim gets it: keep_a_core()
MIB = 1 << 20


# ---- Jobs ----

def buffers(first=2):
    """The requests that import 4 KiB to read as buffer 1 and 64 KiB to write as buffer 2."""
    return [request(first, [wire.memfd(4096)], import_={"buffer": 1, "bytes": 4096}),
            request(first + 1, [wire.memfd(65536)], import_={"buffer": 2, "bytes": 65536})]


def with_buffers():
    return [HELLO, *buffers()]


def small_op():
    return wire.add(view(1, [4]), view(1, [4]), view(2, [4]))


def slow_op(ms):
    """A product of about ms on one core. Strides of 0 make K as long as needed over a small buffer."""
    k = max(1, int(ms * slow_op.k_per_ms))
    return wire.gemm(view(1, [64, k], [0, 0]), view(1, [k, 64], [0, 0]), view(2, [64, 64]), kernel="reference")


def half_product(k):
    """A dot product of 16-bit numbers: 2^24 take about 50 ms."""
    return wire.gemm(view(1, [1, k], [0, 0], wire.F16), view(1, [k, 1], [0, 0], wire.F16), view(2, [1, 1], None, wire.F16),
                     kernel="reference")


def long_row(n):
    """A sum of 16-bit numbers: 2^29, or one part of it, take about 40 ms."""
    return wire.reduce(view(1, [n], [0], wire.F16), view(2, [1], None, wire.F16))


def submits(ops, n, **options):
    """n jobs of these ops, each in a queue of its own."""
    return [request(100 + i, submit={"queue": i, "ops": ops, **options}) for i in range(n)]


def op_ms(daemon, op):
    """What the op takes on the device, each time of OP_S seconds, and five times at least."""
    with daemon.connect() as c:
        for data, fds in buffers(1 << 40):  # no id of the Submits
            c.send_bytes(data, fds)
        taken, until = [], time.monotonic() + OP_S
        while len(taken) < 5 or time.monotonic() < until:
            taken.append(c.submit(op)["compute_us"] / 1e3)
        return taken


def calibrate(daemon):
    slow_op.k_per_ms = 1000
    op_ms(daemon, slow_op(1))
    slow_op.k_per_ms *= 10 / min(op_ms(daemon, slow_op(10)))


# ---- Attacks ----
# Each function is one attacking process; it never returns.

def flood(path, sessions, batch, *args, **options):
    Flood(path, min(sessions, *SESSIONS), batch, *args, **options).run()


def jobs(path, ops, sessions=1, depth=1, **options):
    flood(path, sessions, submits(ops, depth, **options), with_buffers())


def repeat(path, sessions, depth, fds=(), **body):
    """The same request over and over."""
    flood(path, sessions, [request(100 + i, fds, **body) for i in range(depth)], with_buffers())


def datagrams(path, sessions, batch):
    flood(path, sessions, batch)


def invalid_jobs(path, sessions):
    """63 ops that are right, so that all of them are looked at, and one that leaves its buffer."""
    bad = wire.add(view(1, [4], offset=4096), view(1, [4]), view(2, [4]))
    jobs(path, [small_op()] * (OPS - 1) + [bad], sessions, depth=2)


def connect_and_close(path):
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(path)


def connect_without_waiting(path):
    """Takes any place in the queue before those who wait for it."""
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.connect(path)


def connect_by_their_own_socket(path):
    """Which only their user has. It has to get in for that."""
    own = f"{path}.users/{ATTACKER_UID}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(path)
        assert harness.eventually(lambda: os.path.exists(own))
    connect_and_close(own)


def never_hello(path):
    """As many connections as there may be, and on trying."""
    silent = []
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(path)
        silent.append(s)
        if len(silent) > LIMITS["max_sessions_per_uid"]:
            silent.pop(0).close()


def beyond_the_limit(path):
    """Twice as many sessions as there may be, of which the refused ones try again at once."""
    ping = [request(100 + i, ping={}) for i in range(32)]
    Flood(path, 2 * LIMITS["max_sessions_per_uid"], ping).run()


def descriptors(path):
    """Four with each Import, which may have one: the session ends, the next one begins."""
    fds = [wire.memfd(4096) for _ in range(4)]
    datagrams(path, 200, [request(100, fds, import_={"buffer": 1, "bytes": 4096})])


def descriptors_in_garbage(path):
    fds = [wire.memfd(4096) for _ in range(4)]
    datagrams(path, 200, [(b"\xff" * 64, fds)])


def slow_reader(path):
    """Asks for the largest replies and reads none."""
    flood(path, 500, [request(100, describe={})], reads=False)


def garbage(path):
    rnd = random.Random(harness.SEED)
    datagrams(path, 200, [(rnd.randbytes(200), [])])


def nested(path):
    deep = b""
    while len(deep) < wire.DATAGRAM_MAX - 200:
        deep = wire.prefixed(5, deep)
    datagrams(path, 200, [(wire.prefixed(6, deep)[:wire.DATAGRAM_MAX], [])])


def wide_jobs(path):
    """64 ops of as many numbers as a view may have on the wire: long to decode, then refused."""
    wide = [wire.copy(view(1, [1] * 16, [1] * 16), view(2, [1] * 16, [1] * 16))] * OPS
    datagrams(path, 200, [request(100, submit={"ops": wide})])


def alloc_and_drop(path, sessions, bytes, kind):
    pair = [request(100, alloc={"buffer": 9, "bytes": bytes, "kind": kind}), request(101, drop={"buffer": 9})]
    datagrams(path, sessions, pair)


def import_and_drop(path, sessions, bytes):
    pair = [request(100, [wire.memfd(bytes)], import_={"buffer": 9, "bytes": bytes}), request(101, drop={"buffer": 9})]
    datagrams(path, sessions, pair * 4)


def hello_twice(path):
    datagrams(path, 200, [HELLO])


def half_closed(path):
    """Peers that will send nothing more, or read nothing more."""
    while True:
        for how in (socket.SHUT_WR, socket.SHUT_RD):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(path)
                try:
                    s.send(HELLO[0])
                    s.shutdown(how)
                    s.send(HELLO[0])
                except OSError:
                    pass


def twice_in_one(path):
    """A Submit of 64 ops, and another in the same Request."""
    data, _ = request(100, submit={"ops": [small_op()] * OPS})
    datagrams(path, 200, [(data + request(0, submit={"ops": [small_op()]})[0], [])])


def too_large(path):
    datagrams(path, 200, [(b"\x0a" * (4 * wire.DATAGRAM_MAX), [])])


def cut_off(path):
    data, _ = request(100, submit={"ops": [small_op()] * OPS})
    datagrams(path, 200, [(data[:-3], [])])


def imports_of_no_memory(path):
    """A pipe, a folder, a device, a file without seals."""
    fds = [os.pipe()[0], os.open("/", os.O_RDONLY), os.open("/dev/zero", os.O_RDWR), wire.memfd(4096, seals=0)]
    datagrams(path, 200, [request(100 + i, [fd], import_={"buffer": 9, "bytes": 4096}) for i, fd in enumerate(fds)])


def prepare_and_forget(path):
    pairs = [(request(100 + i, submit={"ops": [small_op()] * OPS, "prepare": i + 1, "only_prepare": True}),
              request(200 + i, forget={"prepared": i + 1})) for i in range(8)]
    flood(path, 200, [r for pair in pairs for r in pair], with_buffers())


def cold_runs(path):
    """Each run finds another buffer than the one before, so it is planned anew."""
    prepare = request(9, submit={"ops": [small_op()] * OPS, "prepare": 1, "only_prepare": True})
    again = [request(100, drop={"buffer": 1}), *buffers(101)[:1], request(102, run={"prepared": 1})]
    flood(path, 200, again, with_buffers() + [prepare])


def stopped(attack):
    """Everything out, and nobody to read it."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    attack()


def watched_sockets(path):
    """Each datagram wakes 100,000 places in epoll sets, within the daemon's call."""
    ping, _ = request(1, ping={})
    client = wire.Client(path)
    copies = [client.sock.dup() for _ in range(500)]
    sets = [select.epoll() for _ in range(200)]
    for watch in sets:
        for s in copies:
            watch.register(s, select.EPOLLIN)
    while True:
        send_and_drain(client, ping)


# ---- Rings ----

def with_ring(path, n, ops=OPS):
    """A client with jobs of so many ops prepared as 1 to n, and its ring."""
    c = wire.Client(path)
    for bytes in (4096, 65536):
        c.import_new(bytes)
    for i in range(1, n + 1):
        c.submit([small_op()] * ops, prepare=i, only_prepare=True)
    return c, c.open_ring(256)


def send_and_drain(client, data):
    """Sends where there is room, and forgets all replies."""
    client.sock.setblocking(False)
    try:
        client.send_bytes(data)
        while client.sock.recv(wire.DATAGRAM_MAX):
            pass
        raise wire.Ended
    except BlockingIOError:
        pass


def full_rings(path, sessions, ops=OPS):
    """Kept full, always with a request behind the runs. Runs of one op go together on a GPU."""
    n = max(256 // sessions, 32)
    clients = [with_ring(path, n, ops) for _ in range(sessions)]
    stats, _ = request(1 << 40, stats={})
    while True:
        for client, ring in clients:
            ring.refill(n)
            ring.set(ring.RUN_TAIL, ring.put_in)
            send_and_drain(client, stats)


def scribbled_ring(path):
    """Random words, with a call to look at them."""
    rnd, (wake, _) = random.Random(harness.SEED), request(1, wake={})
    while True:
        client, ring = with_ring(path, 1)
        try:
            while True:
                ring.set(rnd.randrange(0, ring.WORDS_END, 64), rnd.choice([0, 1, 200, 256, 1 << 31, ring.word(ring.RUN_HEAD) + 200]))
                send_and_drain(client, wake)
        except (wire.Ended, OSError):
            client.close()
            ring.close()


def killed(path, ops):
    """A child with sessions that have jobs and buffers, killed, and the next one."""
    while True:
        pid = os.fork()
        if pid == 0:
            alloc = request(4, alloc={"buffer": 3, "bytes": MIB})
            flood(path, 20, submits(ops, 8), with_buffers() + [alloc])
        time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def burn():
    """The CPU without kopsd, half of it in the kernel, as the attackers do."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        a.send(b"x" * 100)
        b.recv(100)


@dataclasses.dataclass
class Attack:
    name: str
    run: Callable  # (path)
    op: Callable = None  # makes the longest op that it sends


def table():
    small, one, half = [small_op()] * OPS, lambda: slow_op(50), lambda: slow_op(5)
    many = 1000
    return [
        Attack("jobs of 64 ops, 1000 sessions", lambda p: jobs(p, small, many), small_op),
        Attack("jobs with a bad op, 1000 sessions", lambda p: invalid_jobs(p, many)),
        Attack("connect and close", connect_and_close),
        Attack("connect without waiting", connect_without_waiting),
        Attack("connect by their own socket", connect_by_their_own_socket),
        Attack("never Hello", never_hello),
        Attack("sessions beyond the limit", beyond_the_limit),
        Attack("4 descriptors to an Import", descriptors),
        Attack("4 descriptors to garbage", descriptors_in_garbage),
        Attack("slow readers", slow_reader),
        Attack("garbage", garbage),
        Attack("deep nesting", nested),
        Attack("jobs of wide views", wide_jobs),
        Attack("Alloc SHARED 64 MiB, 8 sessions", lambda p: alloc_and_drop(p, 8, 64 * MIB, wire.SHARED)),
        Attack("Alloc RESIDENT 64 MiB, 8 sessions", lambda p: alloc_and_drop(p, 8, 64 * MIB, RESIDENT)),
        Attack("Alloc RESIDENT 4 GiB", lambda p: alloc_and_drop(p, 1, 4 << 30, RESIDENT)),
        Attack("Import 4 KiB", lambda p: import_and_drop(p, 200, 4096)),
        Attack("Import 1 GiB, sparse", lambda p: import_and_drop(p, 8, 1 << 30)),
        Attack("Stats", lambda p: repeat(p, 200, 32, stats={})),
        Attack("Describe", lambda p: repeat(p, 200, 32, describe={})),
        Attack("Cancel", lambda p: repeat(p, 200, 32, cancel={"job": 7})),
        Attack("Ping", lambda p: repeat(p, 200, 32, ping={})),
        Attack("one op of 50 ms", lambda p: jobs(p, [one()], 1, 2), one),
        Attack("one op of 50 ms, 200 sessions", lambda p: jobs(p, [one()], 200, 4), one),
        Attack("64 ops of 5 ms", lambda p: jobs(p, [half()] * OPS, 4, 4), half),
        Attack("64 ops of 5 ms, LOW", lambda p: jobs(p, [half()] * OPS, 4, 4, priority=LOW), half),
        Attack("HIGH jobs of 5 ms", lambda p: jobs(p, [half()], 100, 8, priority=HIGH), half),
        Attack("kill -9", lambda p: killed(p, [half()]), half),
        Attack("full ring", lambda p: full_rings(p, 1), small_op),
        Attack("full ring of single ops", lambda p: full_rings(p, 1, 1), small_op),
        Attack("full rings of 64 sessions", lambda p: full_rings(p, 64), small_op),
        Attack("scribbled ring", scribbled_ring, small_op),
        Attack("prepare and Forget", prepare_and_forget),
        Attack("cold runs", cold_runs, small_op),
        Attack("stopped client", lambda p: stopped(lambda: jobs(p, [half()], 200, depth=16)), half),
        Attack("stopped client, full ring", lambda p: stopped(lambda: full_rings(p, 1)), small_op),
        Attack("Hello twice", hello_twice),
        Attack("half-closed peers", half_closed),
        Attack("watched sockets", watched_sockets),
        Attack("two Submits in a Request", twice_in_one),
        Attack("datagrams of 64 KiB", too_large),
        Attack("truncated Submits", cut_off),
        Attack("imports of what is no memory", imports_of_no_memory),
        Attack("Import 1 TiB", lambda p: import_and_drop(p, 200, 1 << 40)),
        Attack("Alloc beyond the limit", lambda p: repeat(p, 200, 32, alloc={"buffer": 9, "bytes": 1 << 46})),
        Attack("product of 2^30 16-bit numbers", lambda p: jobs(p, [half_product(1 << 30)], 4, 4),
               lambda: half_product(1 << 24)),
        Attack("sum of 2^32 16-bit numbers", lambda p: jobs(p, [long_row(1 << 32)], 4, 4), lambda: long_row(1 << 29)),
    ]


# The default run has these only.
SHORT = ("jobs of 64 ops, 1000 sessions", "slow readers", "Alloc SHARED 64 MiB, 8 sessions",
         "Alloc RESIDENT 64 MiB, 8 sessions", "Stats", "one op of 50 ms", "kill -9", "full ring",
         "stopped client, full ring")


# ---- Measuring ----

def as_user(uid, function):
    """A process group of that uid's; its leader."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        function()
    except BaseException as e:
        print(f"attacker: {e!r}", file=sys.stderr, flush=True)
    os._exit(1)


def end(pids):
    """False when one of them had ended before."""
    alive = True
    for pid in pids:
        done, _ = os.waitpid(pid, os.WNOHANG)
        alive = alive and not done
        if not done:
            os.killpg(pid, signal.SIGKILL)
            assert harness.eventually(lambda: os.waitpid(pid, os.WNOHANG)[0], DIES_S), f"attacker {pid} does not die"
    return alive


@dataclasses.dataclass
class Trips:
    n: int
    refused: int
    p50: float  # ms
    p99: float
    max: float


def victim(path, seconds):
    """Kind → Trips."""
    run = subprocess.run([*OWN_CORE, VICTIM, path, str(seconds)], stdout=subprocess.PIPE, text=True, check=True,
                         timeout=seconds + GIVES_UP_S, user=VICTIM_UID, group=VICTIM_UID, extra_groups=[])
    kinds = {}
    for line in run.stdout.splitlines():
        kind, n, refused, *us = line.split()
        kinds[kind] = Trips(int(n), int(refused), *[float(x) / 1e3 for x in us])
    return kinds


def measure(path, seconds, processes, function, also=lambda: 0):
    """The victim's trips beside so many processes of the function, and then what also() returns."""
    pids = [as_user(ATTACKER_UID, function) for _ in range(processes)]
    try:
        time.sleep(1)  # they have opened their sessions
        trips = victim(path, seconds)
        found = also()
    finally:
        alive = end(pids)
    if not alive:
        raise AssertionError("an attacker ended by itself")
    return trips, found


def wait_for_peace(daemon):
    """What the attack left behind is over; the seconds that took."""
    began = time.monotonic()

    def quiet():
        try:
            with daemon.connect() as c:
                s = c.stats()
                return s["sessions"] == 1 and not any(d["queued"] + d["running"] for d in s["devices"])
        except (wire.Ended, wire.Refused, OSError):  # its backlog may still be full
            return False
    assert harness.eventually(quiet, 120, 0.05), "kopsd does not come to rest"
    return time.monotonic() - began


# ---- Judging ----

def header():
    print(f"{'attack':36} {'trip':8} {'n':>6} {'refused':>7} {'p50 ms':>9} {'p99 ms':>9} {'max ms':>9} {'ratio':>8} "
          f"{'bound ms':>9}")


def row(name, kind, trips, ratio=None, bound=None, above=False):
    judged = "" if bound is None else f" {ratio:8.1f} {bound:9.2f}{'  ABOVE' if above else ''}"
    print(f"{name:36} {kind:8} {trips.n:6} {trips.refused:7} {trips.p50:9.3f} {trips.p99:9.3f} {trips.max:9.3f}"
          f"{judged}", flush=True)


def more_ms(attack, kind):
    return ZEROING_MS if kind == "resident" and "RESIDENT" in attack else 0


class Judge:
    def __init__(self, quiet, burners, factor, allowance_ms):
        self.quiet = quiet
        self.controls = [quiet, burners]
        self.factor = factor
        self.allowance_ms = allowance_ms
        self.refused = set()

    def bounds(self, kind, longest_ms):
        """Of p99 and p50."""
        kinds = [kind]
        if not OWN_CORE:  # not RESIDENT memory, for which threads with a queue of their own are waited for
            kinds += KINDS[:4]
        found = [trips[k] for trips in self.controls for k in kinds]
        p99 = self.factor * max(t.p99 for t in found) + longest_ms + self.allowance_ms
        p50 = self.factor * max(t.p50 for t in found) + longest_ms + P50_ALLOWANCE_MS
        return p99, float("inf") if OWN_CORE else p50

    def judge(self, name, trips, longest_ms):
        """The kinds above their bounds. A refusal is a failure at once: the victim asks for next to nothing."""
        found = []
        for kind in KINDS:
            t = trips[kind]
            p99, p50 = self.bounds(kind, longest_ms + more_ms(name, kind))
            above = t.p99 > p99 or (t.p50 > p50 and t.n >= P50_SAMPLES)
            row(name, kind, t, t.p99 / self.quiet[kind].p99, p99, above)
            if above:
                found.append(f"{name}: {kind}")
            if t.refused:
                self.refused.add(f"{name}: {kind}")
        return found


def under(daemon, options, attack):
    """The victim's trips, and how long the attack's op takes, alone or beside it: ms."""
    def longest():
        return max(op_ms(daemon, attack.op())) if attack.op else 0
    alone_ms = longest()
    trips, beside_ms = measure(daemon.socket, options.seconds, options.attackers, lambda: attack.run(daemon.socket), longest)
    return trips, max(alone_ms, beside_ms)


def control(daemon, options, name, processes, function):
    """The victim's trips beside processes that do not attack its daemon."""
    trips, _ = measure(daemon.socket, 2 * options.seconds, processes, function)
    for kind in KINDS:
        row(f"control: {name}", kind, trips[kind])
    return trips


def beside_burners(daemon, options):
    return control(daemon, options, "CPU burnt elsewhere", options.attackers + 1, burn)


def beside_the_same(daemon, other, options, attack):
    trips = control(daemon, options, "on another kopsd", options.attackers, lambda: attack.run(other.socket))
    wait_for_peace(other)
    return trips


def attack_once(daemon, options, attack, judge):
    found = judge.judge(attack.name, *under(daemon, options, attack))
    rest_s = wait_for_peace(daemon)
    if rest_s > 1:
        print(f"{'':36} at rest {rest_s:.1f} s after the attack", flush=True)
    return found


def attack_all(daemon, other, options, attacks):
    """What stays above its bound, or was refused."""
    allowance_ms = options.allowance
    if allowance_ms is None:
        allowance_ms = 0 if OWN_CORE else SHARED_ALLOWANCE_MS
    quiet, above = victim(daemon.socket, 2 * options.seconds), []
    header()
    for kind in KINDS:
        row("quiet", kind, quiet[kind])
    judge = Judge(quiet, beside_burners(daemon, options), options.factor, allowance_ms)
    for attack in attacks:
        judge.controls[2:] = []
        found = attack_once(daemon, options, attack, judge)
        for _ in range(TRIES - 1):
            if found:
                judge.controls[2:] = [beside_the_same(daemon, other, options, attack)]
                found = attack_once(daemon, options, attack, judge)
        above += found
    return above + sorted(judge.refused)


def keep_a_core():
    """One for the victim, where there are CORES; all others are for kopsd and the attackers."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= CORES:
        os.sched_setaffinity(0, cores[:-1])
        OWN_CORE[:] = ["taskset", "--cpu-list", str(cores[-1])]


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=float, default=5, help="of each attack")
    p.add_argument("--attackers", type=int, default=max(1, os.cpu_count() // 2), help="processes")
    p.add_argument("--factor", type=float, default=2)
    p.add_argument("--allowance", type=float, metavar="MS", help="beyond the bound")
    p.add_argument("--short", action="store_true", help="some of the attacks only")
    p.add_argument("--list", action="store_true")
    p.add_argument("attacks", nargs="*", metavar="ATTACK", help="a part of the names of those to run")
    return p.parse_args()


def chosen(options):
    attacks = table()
    if options.short:
        attacks = [a for a in attacks if a.name in SHORT]
    if options.attacks:
        attacks = [a for a in attacks if any(part in a.name for part in options.attacks)]
    return attacks


def main():
    options = parse()
    if options.list:
        print(*[a.name for a in table()], sep="\n")
        return
    if os.geteuid() != 0:
        print("skipped: only root can play two users")
        sys.exit(77)
    if not os.access(harness.KOPSD, os.X_OK) or not os.access(VICTIM, os.X_OK):
        sys.exit("KOPS_TEST_KOPSD and KOPS_TEST_VICTIM must name binaries; run through ctest")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # attackers would go on
    SESSIONS[:] = [LIMITS["max_sessions_per_uid"] // options.attackers]
    keep_a_core()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        daemons = [harness.Daemon(**LIMITS) for _ in range(2)]
        for d in daemons:
            stack.callback(d.remove)
            d.start()
            os.chmod(d.socket, 0o666)
        calibrate(daemons[0])
        above = attack_all(*daemons, options, chosen(options))
        for d in daemons:
            assert d.process.poll() is None, "kopsd died:\n" + d.log().decode()[-5000:]
    if above:
        sys.exit("above the bound, or refused: " + "; ".join(above))
    print("all within their bounds")


if __name__ == "__main__":
    main()
