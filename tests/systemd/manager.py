"""manager.py KOPSD: plays the service manager for one life of kopsd: readiness, watchdog, reload, stop."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

WATCHDOG_USEC = 900_000


class Manager:
    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)

    def next(self, timeout=10.0):
        """The next notification as a dict; fails the test when none comes."""
        self.sock.settimeout(timeout)
        lines = self.sock.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def wait_for(self, key, timeout=10.0):
        """Skips watchdog pings until a notification has `key`."""
        end = time.monotonic() + timeout
        while True:
            got = self.next(max(0.01, end - time.monotonic()))
            if key in got:
                return got
            assert got == {"WATCHDOG": "1"}, got


def check_watchdog(manager):
    """Pings must keep coming well within the limit."""
    last = time.monotonic()
    for _ in range(6):
        assert manager.next(WATCHDOG_USEC / 1e6) == {"WATCHDOG": "1"}
        now = time.monotonic()
        assert now - last < WATCHDOG_USEC / 1e6, now - last
        last = now


def check_reload(manager, daemon):
    before = time.monotonic_ns() // 1000
    daemon.send_signal(signal.SIGHUP)
    reloading = manager.wait_for("RELOADING")
    assert reloading["RELOADING"] == "1"
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.wait_for("READY")["READY"] == "1"


def check_life(daemon, manager, config):
    ready = manager.wait_for("READY", 60)
    assert ready["READY"] == "1" and ready["STATUS"] == "Serving with 1 device", ready
    check_watchdog(manager)

    check_reload(manager, daemon)
    with open(config, "w") as f:
        f.write("max-jobs = 5\nmax-job = 5\n")
    check_reload(manager, daemon)  # refused, but it is ready all the same
    check_watchdog(manager)

    daemon.send_signal(signal.SIGTERM)
    assert manager.wait_for("STOPPING")["STOPPING"] == "1"
    assert daemon.wait(20) == 0


def main():
    with tempfile.TemporaryDirectory(prefix="kops-manager-") as folder:
        manager = Manager(folder)
        config = os.path.join(folder, "kopsd.conf")
        log = os.path.join(folder, "log")
        open(config, "w").close()
        env = dict(os.environ, NOTIFY_SOCKET=manager.path, WATCHDOG_USEC=str(WATCHDOG_USEC))
        command = [sys.argv[1], "--config", config, "--devices", "cpu", "--socket", os.path.join(folder, "sock")]
        with open(log, "w") as err:
            daemon = subprocess.Popen(command, env=env, stderr=err)
        try:
            check_life(daemon, manager, config)
            text = open(log).read()
            assert f"{config}:2: unknown setting max-job; did you mean max-jobs?" in text, text
            assert text.count("configuration reloaded") == 1, text
        except BaseException:
            sys.stderr.write(open(log).read())
            raise
        finally:
            daemon.kill()
            daemon.wait()


main()
