#!/usr/bin/env python3
"""What Dask adds to a product: kops.dask.matmul by a scheduler and a worker for each kopsd, and kops.matmul of the same
arrays by the first kopsd alone. Processor and wall seconds, the least of some runs, as one JSON document. Processor seconds
are those of all processes, so other work on the machine changes them little.

    with_dask.py SIDE CHUNKS SOCKET:PID...     CHUNKS: sides of chunks, with commas between them
"""
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import dask.array as da
import distributed
import numpy as np

import kops
import kops.dask

RUNS = 4
IDLE = "60 s"


def processor_seconds(pids):
    """Of other processes, and this one."""
    total = time.process_time()
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            total += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(pids, action):
    begin, before = time.perf_counter(), processor_seconds(pids)
    action()
    return {"cpu_s": processor_seconds(pids) - before, "s": time.perf_counter() - begin}


def least(*measured):
    return {key: min(m[key] for m in measured) for key in measured[0]}


class Cluster:
    def __init__(self, sockets, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{s.getsockname()[1]}"
        # Should this program be killed, they end by themselves.
        self.programs = [self.start(folder, "scheduler", "--host", address, "--idle-timeout", IDLE)]
        self.programs += [self.start(folder, "worker", address, "--no-nanny", "--nthreads", "1", "--memory-limit", "0",
                                     "--local-directory", folder, KOPS_SOCKET=path) for path in sockets]
        self.client = distributed.Client(address, timeout=60)
        self.client.wait_for_workers(len(sockets), timeout=60)
        self.pids = [p.pid for p in self.programs]

    @staticmethod
    def start(folder, program, *words, **env):
        with open(os.path.join(folder, "log"), "ab") as log:
            return subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{program}", "--no-dashboard", *words],
                                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **env}, stdout=log, stderr=log)

    def product(self, a, b):
        """Computed, and forgotten."""
        distributed.wait(self.client.persist(kops.dask.matmul(a, b)))

    def settle(self):
        """Until no product is there, which would not be computed again."""
        while any("kops-matmul" in str(key) for key in self.client.who_has()):
            time.sleep(0.05)

    def end(self):
        self.client.close()
        for p in self.programs:
            p.kill()
            p.wait()


def arrays(cluster, side, chunk):
    found = cluster.client.persist([da.random.RandomState(seed).uniform(-1, 1, (side, side), chunks=chunk).astype("f")
                                    for seed in (1, 2)])
    distributed.wait(found)
    return found


def rounds(cluster, client, daemons, side, chunks):
    """By chunk, 0: alone. The ways take turns, as the machine's speed may change meanwhile."""
    a, b = (client.asarray(np.random.default_rng(seed).uniform(-1, 1, (side, side)).astype("f")) for seed in (1, 2))
    c = client.zeros((side, side))
    ways = {0: (daemons, lambda: client.matmul(a, b, out=c))}
    for chunk in chunks:
        ways[chunk] = (daemons + cluster.pids, functools.partial(cluster.product, *arrays(cluster, side, chunk)))
    times = {way: [] for way in ways}
    for _ in range(RUNS):
        for way, (pids, action) in ways.items():
            cluster.settle()
            times[way].append(measure(pids, action))
    return {way: least(*measured) for way, measured in times.items()}


def main():
    side, chunks = int(sys.argv[1]), [int(n) for n in sys.argv[2].split(",")]
    sockets, pids = zip(*(word.rsplit(":", 1) for word in sys.argv[3:]))
    with tempfile.TemporaryDirectory(prefix="kops-dask-") as folder, kops.connect(sockets[0], timeout=600) as client:
        cluster = Cluster(sockets, folder)
        try:
            times = rounds(cluster, client, [int(pid) for pid in pids], side, chunks)
            numpy = sum(n["numpy"] for n in cluster.client.run(kops.dask.calls).values())
        finally:
            cluster.end()
    json.dump({"alone": times.pop(0), "chunks": times, "numpy": numpy}, sys.stdout)


main()
