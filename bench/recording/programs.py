"""Runs kopsd, kops-bench and the peers."""
import json
import os
import subprocess
import sys
import tempfile
import time

from .machine import ROOT

PEER_S = 120  # the longest that a peer may take


class Failed(Exception):
    """A program did not do what was asked."""


class Daemon:
    """A private kopsd, which has learnt nothing yet; a context."""

    def __init__(self, build, devices, *options):
        self.build, self.options = build, ["--devices", devices, *options]
        self.kops_bench = str(build / "bench" / "kops-bench")
        self.client = str(build / "client" / "cli" / "kops-client")

    def __enter__(self):
        self.own = tempfile.TemporaryDirectory(prefix="kops-record-")
        self.folder = self.own.name
        socket = os.path.join(self.folder, "kopsd.sock")
        self.env = dict(os.environ, KOPS_SOCKET=socket, CACHE_DIRECTORY=self.folder)
        self.socket, self.log = socket, open(os.path.join(self.folder, "log"), "w+")
        self.process = subprocess.Popen([str(self.build / "daemon" / "kopsd"), "--config", "/dev/null", "--socket", socket,
                                         *self.options], stderr=self.log, env=self.env)
        self.pid = self.process.pid
        for _ in range(600):
            if subprocess.run([self.client, "ping"], env=self.env, capture_output=True).returncode == 0:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.log.seek(0)
        why = self.log.read()
        self.__exit__()
        raise Failed(f"kopsd {' '.join(self.options)} did not get ready: {why}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.own.cleanup()

    def admit_all(self):
        """Users other than its own too."""
        os.chmod(self.folder, 0o711)
        os.chmod(self.socket, 0o666)

    def bench(self, *words):
        return output([self.kops_bench, *words, "--json"], self.env)

    def start_bench(self, *words):
        return subprocess.Popen([self.kops_bench, *words, "--json"], env=self.env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def status(self, key):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith(key + ":"):
                return int(line.split()[1])

    def tasks(self):
        return os.listdir(f"/proc/{self.pid}/task")

    def wakeups(self):
        total = 0
        for task in self.tasks():
            for line in open(f"/proc/{self.pid}/task/{task}/status"):
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
        return total

    def cpu_seconds(self):
        """Of each thread, by its id."""
        seconds = {}
        for task in self.tasks():
            with open(f"/proc/{self.pid}/task/{task}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            seconds[int(task)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds

    def openblas_choice(self):
        with open(f"/proc/{self.pid}/environ", "rb") as f:
            pairs = [v.decode().partition("=") for v in f.read().split(b"\0")]
        return {k: v for k, _, v in pairs if k == "OPENBLAS_CORETYPE"}


def output(words, env=None, **more):
    """The JSON document that a program writes."""
    words = [str(w) for w in words]
    what = " ".join(os.path.basename(w) if i == 0 else w for i, w in enumerate(words))
    try:
        out = subprocess.run(words, env=env, capture_output=True, text=True, **more)
        if out.returncode:
            raise Failed(f"{what} failed with {out.returncode}: {out.stderr.strip()[-300:]}")
        return json.loads(out.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as e:
        raise Failed(f"{what}: {e}") from e


def peer(program, *words, env=None, **more):
    """What a peer measured; None where it is not there or fails, which is reported."""
    try:
        return output([program, *words], env, timeout=PEER_S, **more)
    except Failed as e:
        print(f"bench/record: without this peer: {e}", file=sys.stderr, flush=True)
        return None


def python_peer(name, *words, env=None, **more):
    return peer(sys.executable, ROOT / "bench" / "peers" / name, *words, env=env, **more)


class Mps:
    """NVIDIA's Multi-Process Service; a context whose value is the environment of its clients, None where it is missing."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="kops-mps-")
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": self.folder.name, "CUDA_MPS_LOG_DIRECTORY": self.folder.name}
        self.env = None
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True, timeout=PEER_S)
            self.env = env
        except (OSError, subprocess.SubprocessError) as e:
            print(f"bench/record: without MPS: {e}", file=sys.stderr, flush=True)
        return self.env

    def __exit__(self, *_):
        if self.env:
            try:
                subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env=self.env, text=True, check=False,
                               timeout=PEER_S)
            except (OSError, subprocess.SubprocessError) as e:
                print(f"bench/record: MPS did not stop: {e}", file=sys.stderr, flush=True)
        self.folder.cleanup()
