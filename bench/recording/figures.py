"""What callers see of kopsd, beside its peers: the rows of bench/recorded/NAME.json.

A part is measured at a time. Its rows are of several themes, and bench/tables makes a table of each theme.
"""
import array
import concurrent.futures
import json
import os
import random
import socket
import statistics
import subprocess
import time

from . import encoder, machine, scale
from .machine import ROOT
from .programs import Daemon, Failed, Mps, peer, python_peer

SPIN = ["--spin", "10000"]
BUSY = ["gemm", "8192x8192x8192", "--launches", "4", "--no-check", "--warmup", "1000000", "--reps", "1000"]
IDLE_S = 5
MEMORY_SIZES = (64, 128, 256, 512, 1024, 2048)
HOST_SIZES = (64, 256, 1024, 4096, 8192)
# Of a repeated job, spinning or not → what is to be reached in µs. Wall clock: (products, size, resident).
WALL = {False: {(1, 64, False): 32, (32, 64, True): 130, (32, 256, True): 235, (32, 512, True): 430},
        True: {(1, 64, False): 20}}
LOST = {False: 28, True: 14}  # wall clock less device time, of one product
# How often is measured what differs from run to run by where the kernel puts threads: odd, for medians.
IPC_TURNS, PATH_TURNS = 9, 3
# Clients, out → products of 64³ a second, p50 and worst p99 in µs. Those whose peer spins are to be reached spinning.
RATES = {(1, 64): (400e3, None, None), (4, 1): (150e3, 28, 60), (16, 1): (350e3, 50, 120), (16, 16): (400e3, None, 1500)}
BESIDE_EVERY_US, BESIDE_COUNT = "300", "3000"
# Products over two GPUs: sizes and targets. A job is spread when kernels for it have been tried.
SPREAD_SIZES, SPREAD_WARMUP = {4096: None, 8192: "≤ 7.5 ms", 16384: "≤ 29 ms"}, 45
AT_ONCE = ((8, 16, False), (1, 64, False), (8, 1, True))  # clients, out, spinning; on each of two GPUs


class Rows:
    """Figures of one part."""

    def __init__(self, part):
        self.part, self.list = part, []

    def add(self, theme, name, value, unit, target=None, how="", peers=()):
        """peers: (name, value) each; those that were not measured have None."""
        beside = [{"name": n, "value": round(v, 3), "ratio": round(value / v, 4)} for n, v in peers if v]
        row = {"part": self.part, "theme": theme, "name": name, "value": round(value, 3), "unit": unit, "how": how,
               "peers": beside, **({"target": target} if target else {})}
        self.list.append(row)
        print(f"{name}: {row['value']} {unit}" + "".join(f"; {p['name']} {p['value']}, ratio {p['ratio']}" for p in beside),
              flush=True)


def of(found, *keys):
    """A value somewhere in a peer's document; None without it."""
    for key in keys:
        found = found and found.get(key)
    return found


def middle(documents):
    """Of an odd number of documents alike: one with the median of each number."""
    first = documents[0]
    if isinstance(first, dict):
        return {key: middle([d[key] for d in documents]) for key in first}
    if isinstance(first, list):
        return [middle(each) for each in zip(*documents)]
    return statistics.median(documents) if isinstance(first, (int, float)) else first


# ---- the daemon itself ----

def session_kib(daemon, count=1000):
    """Resident memory of the daemon per idle session that has said Hello, KiB."""
    hello = bytes([0x08, 1, 0x12, 4, 0x08, 1, 0x10, 1])  # Request{id: 1, hello: {version_min: 1, version_max: 1}}
    before = daemon.status("VmRSS")
    sockets = []
    for _ in range(count):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(daemon.socket)
        s.send(hello)
        s.recv(16384)
        sockets.append(s)
    grown = daemon.status("VmRSS") - before
    for s in sockets:
        s.close()
    return grown / count


def idle(rows, daemon, device):
    time.sleep(1)
    before = daemon.wakeups()
    time.sleep(IDLE_S)
    rows.add("daemon", f"idle daemon, {device}: wake-ups", (daemon.wakeups() - before) / IDLE_S, "1/s", "0")
    is_cpu = device == "cpu"  # the driver alone takes far more
    rows.add("daemon", f"idle daemon, {device}: RSS", daemon.status("VmRSS") / 1024, "MiB", "≤ 10 MB" if is_cpu else None)


def round_trips(rows, daemon, device):
    """Adds the ping; the echo's time."""
    ipc = middle([daemon.bench("ipc", "--count", "5000") for _ in range(IPC_TURNS)])
    echo = ipc["echo"]["p50_us"]
    rows.add("daemon", f"ping, {device}", ipc["ping"]["p50_us"], "µs", "≤ 1.15 × the echo",
             f"kops-bench ipc, median of {IPC_TURNS} turns", [("bare SEQPACKET echo", echo)])
    return echo


def busiest_thread_percent(daemon):
    """Of a CPU, while jobs of some 20 ms keep the device busy: of the thread that works most beside the loop."""
    looks = []
    process = daemon.start_bench(*BUSY)
    while process.poll() is None:
        looks.append((time.monotonic(), daemon.cpu_seconds()))
        time.sleep(0.05)
    if process.returncode:
        raise Failed(f"kops-bench {' '.join(BUSY)} failed with {process.returncode}")
    # kops-bench ends with two seconds of samples; before them are uploads and trials.
    end_s, end = looks[-2]
    begin_s, begin = min(looks, key=lambda look: abs(look[0] - (end_s - 1.7)))
    return 100 * max(end[t] - begin.get(t, 0) for t in end if t != daemon.pid) / (end_s - begin_s)


def whole_command_ms(daemon, n, device):
    for name in ("a", "b"):
        with open(os.path.join(daemon.folder, f"{name}.bin"), "wb") as f:
            array.array("f", [random.uniform(-1, 1) for _ in range(n * n)]).tofile(f)
    times = []
    for _ in range(15):
        start = time.perf_counter()
        subprocess.run([daemon.client, "sgemm", "--device", device, "a.bin", "b.bin", "-o", "c.bin"], cwd=daemon.folder,
                       env=daemon.env, check=True, capture_output=True)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


def cpu_part(rows, build):
    with Daemon(build, "cpu") as d:
        idle(rows, d, "cpu")
        rows.add("daemon", "an idle session", session_kib(d), "KiB", "≤ 32 KiB")
        echo = round_trips(rows, d, "cpu")
        small = next(j for j in d.bench("path", "--device", "cpu")["jobs"] if (j["ops"], j["size"]) == (32, 8))
        rows.add("daemon", "CPU device, 32 × 8³ in one repeated job", small["wall"]["p50_us"], "µs",
                 "≤ 15 µs above the echo", "kops-bench path", [("bare SEQPACKET echo", echo)])
        # With the kernels that kopsd made OpenBLAS use, where it did: the library's own choice may be far slower. In
        # turns, since one run differs from the next by more than kopsd from its peer.
        env = {**os.environ, **d.openblas_choice()}
        turns = [(host_to_host(d, [1024])[0],
                  of(peer(build / "bench" / "peers" / "openblas_peer", 1024, 1024, 1024, env=env), "median_us"))
                 for _ in range(7)]
        ours, theirs = zip(*turns)
        rows.add("daemon", "CPU device, 1024³ host to host", statistics.median(ours), "µs", "≤ 1/0.95 × OpenBLAS",
                 "kops-bench gemm --host, median of 7 turns", [("OpenBLAS in process", median_of(theirs))])


def daemon_part(rows, build):
    with Daemon(build, "gpu0") as d:
        idle(rows, d, "gpu0")
        round_trips(rows, d, "gpu0")
        rows.add("daemon", "device thread while 20 ms jobs run", busiest_thread_percent(d), "% of a CPU", "≤ 30 %",
                 f"kops-bench {' '.join(BUSY)}")
        rows.add("daemon", "kops-client sgemm 1024², whole command", whole_command_ms(d, 1024, "gpu0"), "ms", "≤ 12 ms")


# ---- jobs of callers ----

def median_of(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def host_to_host(daemon, sizes, *more):
    b = daemon.bench("gemm", ",".join(f"{n}x{n}x{n}" for n in sizes), "--host", "--no-check", *more)
    return [r["median_us"] for r in b["rows"]]


def cublas(build, shapes):
    """{(products, size): what it took}. One process, since each takes a second or two to start."""
    found = peer(build / "bench" / "peers" / "cublas_peer", *[f"{n}x{n}x{n}:{products}" for products, n in shapes])
    return {(s["products"], s["m"]): s for s in found["shapes"]} if found else {}


def words_of(job):
    """Short: "32 × 64³", or "64 × softmax 64²" with the type where it is another."""
    kind = "" if job["op"] == "gemm" else job["op"] + " "
    dtype = "" if job["dtype"] == "f32" else " " + job["dtype"]
    return (f"{job['ops']} × " if job["ops"] > 1 else "") + f"{kind}{job['size']}{'³' if job['op'] == 'gemm' else '²'}{dtype}"


def independent_row(rows, job, spin, how, floor):
    plain = job["op"] == "gemm" and job["dtype"] == "f32"
    peers = [("floor", floor["together"] / floor["resident_us"] * 1e6)] if plain and floor else ()
    rows.add("together", f"{words_of(job)} independent{', spinning' if spin else ''}",
             job["ops"] / job["wall"]["p50_us"] * 1e6, "1/s", "≥ 700 k" if plain else None, how, peers)


def job_rows(rows, job, spin, how, blas, floor):
    key, one = (job["ops"], job["size"], job["resident"]), job["ops"] == 1
    where = "resident" if job["resident"] else "host to host"
    name = f"{words_of(job)} {where}{', spinning' if spin else ''}"
    took = blas.get((job["ops"], job["size"]))
    peers = [("cuBLAS in process", of(took, "resident_us" if job["resident"] else "host_to_host_us"))]
    if not one:
        peers.append(("cuBLAS in one graph", of(took, "graph_us")))
    if key == (1, 64, False):
        peers.append(("floor", of(floor, "one_us")))
    wall = WALL[spin].get(key)
    rows.add("job", name, job["wall"]["p50_us"], "µs", wall and f"≤ {wall} µs", how, peers)
    lost = LOST[spin] if one and job["resident"] else None
    rows.add("lost", name, job["lost"]["p50_us"], "µs", lost and f"≤ {lost} µs", how)
    rows.add("lost", f"{name}, p99", job["lost"]["p99_us"], "µs", lost and "≤ 100 µs", how)
    if key == (32, 64, True) and not spin:
        rows.add("lost", f"{words_of(job)} in a first Submit: arrival to start, an op",
                 job["new_job_to_start"]["p50_us"] / job["ops"], "µs", "≤ 3 µs", how)


def words_of_crowd(clients, out, spin):
    return f"{clients} client{'s' if clients > 1 else ''}, {out} in flight{', spinning' if spin else ''}"


def crowd_rows(rows, rate, spin, how, beside):
    """beside: {"under MPS": {(clients, out): …}, …}, whose programs spin."""
    key = (rate["clients"], rate["out"])
    is_meant = spin or key[0] == 1  # several clients shall compare with programs that spin
    targets = dict(zip(("per_second", "p50_us", "worst_p99_us"), RATES.get(key, ()) if is_meant else ()))
    crowd = words_of_crowd(*key, spin)
    for what, unit, field in (("64³ products", "1/s", "per_second"), ("p50", "µs", "p50_us"),
                              ("worst p99", "µs", "worst_p99_us")):
        if field == "p50_us" and rate["out"] > 1:
            continue  # it says how many are in flight, and no more
        least = targets.get(field)
        target = least and (f"≥ {least / 1e3:.0f} k" if unit == "1/s" else f"≤ {least} µs")
        peers = [(name, of(got.get(key), field)) for name, got in beside.items()] if spin else ()
        rows.add("processes" if spin else "clients", f"{crowd}: {what}", rate[field], unit, target, how, peers)


def processes(build, env=None):
    """{(processes, out): what they got done}, of processes that call cuBLAS each for itself."""
    found = {}
    for count, outs in ((1, "1,64"), (4, "1"), (16, "1,16")):
        got = peer(build / "bench" / "peers" / "cublas_peer", "--processes", count, outs, "64x64x64", env=env)
        found.update({(count, r["out"]): r for r in got["rates"]} if got else {})
    return found


def jobs_part(rows, build):
    floor = peer(build / "bench" / "peers" / "floor_peer")
    beside = {"processes of their own": processes(build)}
    with Mps() as env:
        beside = {"under MPS": processes(build, env) if env else {}, **beside}
    if floor:  # of as many products in one launch as a client has in flight
        beside["floor"] = {(1, floor["together"]): {"per_second": floor["together"] / floor["host_us"] * 1e6}}
    with Daemon(build, "gpu0") as d:
        words = {spin: ["path", *(SPIN if spin else [])] for spin in (False, True)}
        paths = middle([[d.bench(*w) for w in words.values()] for _ in range(PATH_TURNS)])
        blas = cublas(build, dict.fromkeys((j["ops"], j["size"]) for j in paths[0]["jobs"]
                                           if j["op"] == "gemm" and not j["independent"]))
        both = [(spin, f"kops-bench {' '.join(w)}, median of {PATH_TURNS} turns") for spin, w in words.items()]
        for jobs in zip(*[path["jobs"] for path in paths]):
            for (spin, how), job in zip(both, jobs):
                if job["independent"]:
                    independent_row(rows, job, spin, how, floor)
                else:
                    job_rows(rows, job, spin, how, blas, floor)
        for rates in zip(*[path["rates"] for path in paths]):
            for (spin, how), rate in zip(both, rates):
                crowd_rows(rows, rate, spin, how, beside)


def crowd_alone(clients, out, spin):
    return ["path", "--clients", str(clients), "--out", str(out), *(SPIN if spin else [])]


def at_once(daemons, crowd):
    """Products a second, all together, of a crowd on the first GPU and its like on the second, as far as there are daemons."""
    words = crowd_alone(*crowd)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = [pool.submit(d.bench, *words, "--device", f"gpu{i}") for i, d in enumerate(daemons)]
        return sum(r.result()["rates"][0]["per_second"] for r in running)


def gpus_part(rows, build):
    """Two GPUs with a daemon each, beside one daemon for both."""
    turns = []
    for _ in range(PATH_TURNS):
        with Daemon(build, "gpu0") as one, Daemon(build, "gpu1") as two:
            each = [(at_once((one, two), crowd), at_once((one,), crowd)) for crowd in AT_ONCE]
        with Daemon(build, "gpu0,gpu1") as d:
            turns.append([(*rates, at_once((d, d), crowd)) for rates, crowd in zip(each, AT_ONCE)])
    for (each, alone, both), crowd in zip(middle(turns), AT_ONCE):
        rows.add("gpus", f"{words_of_crowd(*crowd)}, on each of two GPUs: 64³ products", each, "1/s", None,
                 f"kops-bench {' '.join(crowd_alone(*crowd))}, median of {PATH_TURNS} turns",
                 [("one daemon for both", both), ("one GPU and its daemon", alone)])


def spread_part(rows, build):
    """Large products, host to host, over two GPUs and on one."""
    with Daemon(build, "gpu0,gpu1") as d:
        turns = [[host_to_host(d, SPREAD_SIZES, "--again", "--warmup", SPREAD_WARMUP, "--reps", "10", "--device", device)
                  for device in ("gpu*", "gpu0")] for _ in range(3)]
    for i, (n, target) in enumerate(SPREAD_SIZES.items()):
        both, one = (statistics.median(turn[which][i] for turn in turns) / 1e3 for which in (0, 1))
        rows.add("spread", f"f32 {n}³, host to host, over two GPUs", both, "ms", target,
                 "kops-bench gemm --host --again --device gpu*, median of 3 turns", [("one GPU", one)])


def beside_words(load):
    """Of "gemm:f32:tf32:8192": "tf32 8192³"."""
    op, *types, size = [word for word in load.split(":") if word not in ("host", "anew", "x16")]
    more = {"host": ", host to host", "anew": ", a new shape each", "x16": ", 16 a job"}
    what = f"{types[-1]} {size}³" if op == "gemm" else f"{op} {types[-1]} {size}²"
    return what + "".join(words for word, words in more.items() if word in load.split(":"))


def beside_peers(build, load, env=None):
    """What becomes of programs that call cuBLAS themselves, where there is such a one."""
    op, *types, size = load.split(":")
    if op != "gemm" or not size.isdigit():
        return None
    return peer(build / "bench" / "peers" / "beside_peer", BESIDE_EVERY_US, BESIDE_COUNT, f"{types[-1]}:{size}", env=env)


def beside_part(rows, build):
    """A small product of one user beside a heavy user of another."""
    how = f"kops-bench beside --count {BESIDE_COUNT}"
    with Daemon(build, "gpu0") as d:
        d.admit_all()
        got = d.bench("beside", "--count", BESIDE_COUNT, "--every", BESIDE_EVERY_US)
    measured = [load for load in got["loads"] if not load["why"]]
    others = {"processes of their own": [beside_peers(build, load["load"]) for load in measured]}
    with Mps() as env:
        others = {"under MPS": [env and beside_peers(build, load["load"], env) for load in measured], **others}
    quiet = got["quiet"]["wall"]
    rows.add("beside", "64³ beside nothing: p50", quiet["p50_us"], "µs", None, how)
    rows.add("beside", "64³ beside nothing: p99", quiet["p99_us"], "µs", None, how)
    for i, load in enumerate(measured):
        words, wall = beside_words(load["load"]), load["light"]["wall"]
        for key, target in ("p50_us", f"≤ {quiet['p50_us'] + 40:.0f} µs"), ("p99_us", "≤ 300 µs"):
            rows.add("beside", f"64³ beside {words}: {key.partition('_')[0]}", wall[key], "µs", target, how,
                     [(name, of(found[i], "light", key)) for name, found in others.items()])
        rows.add("beside", f"{words} beside 64³: kept", load["kept"] * 100, "%", "≥ 95 %", how,
                 [(name, found[i] and 100 * found[i]["beside_per_second"] / found[i]["alone_per_second"])
                  for name, found in others.items()])


def host_part(rows, build):
    with Daemon(build, "gpu0") as d:
        turns = []
        for _ in range(3):
            blas = cublas(build, [(1, n) for n in HOST_SIZES])
            turns.append((host_to_host(d, HOST_SIZES, "--warmup", "5", "--reps", "30"), [of(blas.get((1, n)), "host_to_host_us") for n in HOST_SIZES]))
    for i, n in enumerate(HOST_SIZES):
        rows.add("job", f"{n}³ host to host, a new job each", statistics.median(ours[i] for ours, _ in turns), "µs",
                 "≤ 1.05 × cuBLAS" if n == 4096 else None, "kops-bench gemm --host, median of 3 turns",
                 [("cuBLAS in process", median_of(theirs[i] for _, theirs in turns))])


def small_part(rows, build):
    """Small memory-bound ops, as jobs of many, beside PyTorch's in a CUDA graph."""
    sizes = ",".join(f"{n}x{n}" for n in MEMORY_SIZES)
    with Daemon(build, "gpu0") as d:
        for op in "add", "softmax", "transpose", "reduce":
            for dtype in "f32", "f16":
                words = [op, sizes, "--dtype", dtype, "--launches", "32", "--cache", "warm", "--no-check", "--no-ceiling"]
                document = d.bench(*words)
                torch = python_peer("with_torch.py", input=json.dumps(document))
                theirs = {r["shape"]: r["median_us"] for r in torch["rows"]} if torch else {}
                for row in document["rows"]:
                    n = row["shape"].split("x")[0]
                    rows.add("small", f"{op} {dtype} {n}²", row["median_us"], "µs", "≤ PyTorch", f"kops-bench {' '.join(words)}",
                             [("PyTorch in a graph", theirs.get(row["shape"]))])


# ---- Python and BLAS ----

NUMPY_TARGETS = {("", "float32"): "≤ 8 ms", (", KOPS_BLAS_ALLOC=1", "float32"): "≤ 3.5 ms"}


def python_part(rows, build):
    """The Python client, and NumPy with and without the BLAS library before its own."""
    library, preload = build / "client" / "libkops.so", build / "client" / "libblas" / "libkops-blas.so"
    with Daemon(build, "gpu0") as d:
        env = {**d.env, "PYTHONPATH": str(ROOT / "client" / "python")}
        if library.exists():
            env["KOPS_LIBRARY"] = str(library)
        got = python_peer("with_python.py", build / "bench" / "peers" / "libc_call.so", env=env)
        if got is None:
            return
        with_blas = {words: python_peer("with_python.py", "numpy", env={**env, "LD_PRELOAD": str(preload), **settings})
                     for words, settings in (("", {}), (", KOPS_BLAS_ALLOC=1", {"KOPS_BLAS_ALLOC": "1"}))}
    how, numpy = "bench/peers/with_python.py", f"NumPy, {got['blas']}"
    rows.add("python", "kops.matmul of shared arrays, 64³, out=", got["shared_us"], "µs", "≤ 5 µs above the C call", how,
             [("the C call", got["c_call_us"])])
    rows.add("python", "kops.matmul of shared arrays, 64³, new result", got["new_us"], "µs", None, how)
    for dtype, us in got["ordinary"].items():
        rows.add("python", f"kops.matmul of ordinary arrays, 4096³ {dtype}", us["kops_us"] / 1e3, "ms", None, how,
                 [(numpy, us["numpy_us"] / 1e3), ("PyTorch, .cuda() and back", us["torch_us"] and us["torch_us"] / 1e3)])
    for words, found in with_blas.items():
        for dtype, us in found["ordinary"].items() if found else ():
            rows.add("python", f"NumPy's a @ b with libkops-blas.so{words}, 4096³ {dtype}", us["numpy_us"] / 1e3, "ms",
                     NUMPY_TARGETS.get((words, dtype)), f"{how} numpy", [(numpy, got["ordinary"][dtype]["numpy_us"] / 1e3)])


BLAS_SIDE = 4096
BLAS_NAMES = {"gemm": "gemm, 4096 × 4096 × 512 (an update of LU)", "gemm_batch": "gemm_batch, 64 × 512³"}


def blas_part(rows, build):
    """BLAS routines with and without the library before OpenBLAS."""
    preload = build / "client" / "libblas" / "libkops-blas.so"
    with Daemon(build, "gpu0") as d:
        alone = python_peer("with_blas.py", BLAS_SIDE)
        got = python_peer("with_blas.py", BLAS_SIDE, env={**d.env, "LD_PRELOAD": str(preload)})
    for routine, ms in got.items() if alone and got else ():
        what = BLAS_NAMES.get(routine[1:], f"{routine[1:]}, {BLAS_SIDE}²")
        rows.add("blas", routine[0] + what, ms, "ms", None, "bench/peers/with_blas.py",
                 [(f"OpenBLAS, {machine.cores()} cores", alone[routine])])


LAPACK_SIDES, LAPACK_TYPES = (1024, 4096, 8192), ("float64", "float32", "complex128")
LAPACK_NAMES = {"solve": "solve, 64 right-hand sides", "cholesky": "cholesky", "inv": "inv"}


def lapack_part(rows, build):
    """NumPy's calls of LAPACK with and without the library before its OpenBLAS, and CuPy's with copies."""
    preload, how = build / "client" / "libblas" / "libkops-blas.so", "bench/peers/with_lapack.py"
    what = [",".join(map(str, LAPACK_SIDES)), ",".join(LAPACK_TYPES)]
    with Daemon(build, "gpu0") as d:
        alone = python_peer("with_lapack.py", "numpy", *what)
        got = python_peer("with_lapack.py", "numpy", *what, env={**d.env, "LD_PRELOAD": str(preload), "KOPS_BLAS_THRESHOLD": "128"})
        cupy = python_peer("with_lapack.py", "cupy", *what) or {}
    for key, ms in got.items() if alone and got else ():
        name, dtype, side = key.split()
        rows.add("lapack", f"{LAPACK_NAMES[name]}, {side}², {dtype}", ms, "ms", None, how,
                 [(f"OpenBLAS, {machine.cores()} cores", alone[key]), ("CuPy, with copies", cupy.get(key))])


PARTS = {"cpu": cpu_part, "daemon": daemon_part, "jobs": jobs_part, "beside": beside_part, "gpus": gpus_part,
         "spread": spread_part,
         "small": small_part, "host": host_part, "python": python_part, "blas": blas_part, "lapack": lapack_part, "dask": scale.dask_part, "mpi": scale.mpi_part,
         "encoder": encoder.encoder_part}
GPUS = {"cpu": 0, "dask": 0, "mpi": 0, "gpus": 2, "spread": 2}  # that a part needs; the others need one
