"""python -m kops: the daemon and its devices."""
from __future__ import annotations

import sys

import kops


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + "s" * (n != 1)


def main() -> int:
    if len(sys.argv) > 1:
        print("Usage: python -m kops\nShows the daemon and its devices; kops-client does more.",
              file=sys.stdout if sys.argv[1] in ("-h", "--help") else sys.stderr)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    try:
        with kops.connect(name="python -m kops") as client:
            info = client.info()
    except kops.Error as e:
        print(f"kops: {e}", file=sys.stderr)
        return 1
    print(f"{info.daemon}, up {info.uptime_us / 1e6:.0f} s: {_count(info.sessions, 'session')}, "
          f"{_count(info.buffers, 'buffer')}, {info.mapped_bytes / 2**20:.1f} MiB mapped")
    for d in info.devices:
        print(f"{d.name:6} {d.description}\n       {d.memory_bytes / 2**30:.1f} GiB, {_count(d.jobs_done, 'job')} done, "
              f"{d.jobs_failed} failed, {d.queued} queued, {d.running} running")
        if d.disabled_kernels:
            print(f"       kernels that failed their self-test: {d.disabled_kernels}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
