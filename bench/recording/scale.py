"""Work of several hosts, on the CPUs of one: what Dask and MPI add to products. See docs/scale.md."""
import ctypes.util
import os
import re
import subprocess
import sys

from .machine import ROOT
from .programs import Daemon, Failed, python_peer

ONE_CORE = ("--cpu-threads", "1")
DASK_SIDE, DASK_CHUNKS = 4096, (512, 1024, 2048)
MPI_SIDE, MPI_BLOCK, MPI_RANKS, MPI_RUNS = 4096, 64, 4, 4


def dask_part(rows, build):
    """Two workers, whose kopsds have a core each."""
    with Daemon(build, "cpu", *ONE_CORE) as one, Daemon(build, "cpu", *ONE_CORE) as two:
        env = {**one.env, "PYTHONPATH": str(ROOT / "client" / "python"), "KOPS_LIBRARY": str(build / "client" / "libkops.so")}
        got = python_peer("with_dask.py", DASK_SIDE, ",".join(map(str, DASK_CHUNKS)),
                          *(f"{d.socket}:{d.pid}" for d in (one, two)), env=env)
    if got is None:
        return
    for chunk in DASK_CHUNKS:
        tasks = -(-DASK_SIDE // chunk) ** 3
        rows.add("dask", f"{DASK_SIDE}³ float32 in {tasks} products of {chunk}³: processor time",
                 got["chunks"][str(chunk)]["cpu_s"], "s", None, "bench/peers/with_dask.py",
                 [("kops.matmul, one process", got["alone"]["cpu_s"])])


def product_s(exports):
    """Of ScaLAPACK's pdgemm by some ranks; exports: what their environment has more."""
    exported = [word for key, value in {"OPENBLAS_NUM_THREADS": 1, **exports}.items() for word in ("-x", f"{key}={value}")]
    words = ["mpirun", "--oversubscribe", "-n", str(MPI_RANKS), *exported, sys.executable,
             str(ROOT / "bench" / "peers" / "pdgemm.py"), ctypes.util.find_library("scalapack-openmpi") or "none",
             str(MPI_SIDE), str(MPI_BLOCK)]
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    except OSError as e:
        raise Failed(f"mpirun: {e}") from e
    found = re.search(r"right ([\d.]+) s", done.stdout)
    if not found:
        raise Failed(f"mpirun failed with {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(found[1])


def mpi_part(rows, build):
    """Ranks that share one kopsd; the least of runs that take turns. OpenBLAS has the kernels that kopsd chose for it."""
    with Daemon(build, "cpu") as daemon:
        common = {"LD_PRELOAD": build / "client" / "libblas" / "libkops-blas.so", "KOPS_SOCKET": daemon.socket,
                  **daemon.openblas_choice()}
        ways = {}
        for block in (32, 512):
            for way, threshold in (("openblas", "inf"), ("kops", 128)):
                ways[f"{way} {block}"] = {**common, "KOPS_BLAS_THRESHOLD": threshold, "KOPS_PBLAS_BLOCK": block}
        times = {way: [] for way in ways}
        for _ in range(MPI_RUNS):
            for way, exports in ways.items():
                times[way].append(product_s(exports))
    best = {way: min(seconds) for way, seconds in times.items()}
    for block in (32, 512):
        rows.add("mpi", f"pdgemm {MPI_SIDE}³ float64, {MPI_RANKS} ranks, {block} columns at a time", best[f"kops {block}"], "s",
                 None, "bench/peers/pdgemm.py", [("OpenBLAS, a thread a rank", best[f"openblas {block}"])])
