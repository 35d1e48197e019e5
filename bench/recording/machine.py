"""The machine that figures come from, and what they were measured of."""
import hashlib
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TREES = ["kernels", "daemon", "proto"]
FITTED = "kernels/fitted.c"


def tree_hash(tree):
    """Of its sources in HEAD, but for constants that are fitted to what was recorded."""
    files = subprocess.check_output(["git", "ls-tree", "-r", "HEAD", tree], cwd=ROOT, text=True).splitlines()
    return hashlib.sha1("\n".join(f for f in files if not f.endswith(FITTED)).encode()).hexdigest()


def tree_hashes():
    return {t: tree_hash(t) for t in TREES}


def nvidia_smi(*words):
    """What it prints; empty without a GPU."""
    try:
        return subprocess.check_output(["nvidia-smi", *words], text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""


def gpu():
    fields = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu"
    out = nvidia_smi(f"--query-gpu={fields}", "--format=csv,noheader", "-i", "0")
    return dict(zip(fields.split(","), [f.strip() for f in out.strip().split(",")])) if out else None


def gpus():
    """How many there are."""
    return len(nvidia_smi("--list-gpus").splitlines())


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


class Load:
    """Clock, power and temperature of the first GPU while something runs; half a second between two looks."""

    FIELDS = {"clocks.sm": "sm_mhz", "clocks.mem": "memory_mhz", "power.draw": "power_w", "temperature.gpu": "celsius"}

    def __enter__(self):
        self.looks, self.process = [], None
        if gpu():
            self.process = subprocess.Popen(
                ["nvidia-smi", f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits", "-i", "0", "-lms",
                 "500"], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            for line in self.process.communicate()[0].splitlines():
                fields = line.split(",")
                if len(fields) == len(self.FIELDS):
                    self.looks.append([float(f) for f in fields])

    def summary(self):
        return {name: dict(zip(("min", "median", "max"), (min(c), statistics.median(c), max(c))))
                for name, c in zip(self.FIELDS.values(), zip(*self.looks))}


def cores():
    return len(os.sched_getaffinity(0))
