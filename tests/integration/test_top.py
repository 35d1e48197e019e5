"""kops-client top: its frames as text, and on a terminal of 80 columns and 24 lines."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

from support import harness, wire
from test_users import as_user, result

OK, FAILED, USAGE, CONNECT = range(4)
TOP = os.path.join(os.path.dirname(harness.KOPS_CLIENT), "kops-top")


class TopTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.stop, self.worker = threading.Event(), None

    def tearDown(self):
        self.stop.set()
        if self.worker:
            self.worker.join()
        super().tearDown()

    def work(self, make_op):
        """A session, "worker", that sends one job after the other."""
        c = self.client(name="worker")
        op = make_op(c)

        def send():
            while not self.stop.is_set():
                c.submit(op)
        self.worker = threading.Thread(target=send)
        self.worker.start()

    def work_long(self):
        """Jobs of many parts."""
        self.work(lambda c: self.slow_op(c, 300))

    def work_short(self):
        def copy(c):
            a = c.import_new(256)
            return wire.copy(wire.view(a, [8]), wire.view(a, [8], offset=128))
        self.work(copy)

    def env(self, **more):
        return {**harness.client_env(self.daemon.socket), "TERM": "xterm-256color", **more}

    def batch(self, *args, code=OK, **env):
        r = subprocess.run([harness.KOPS_CLIENT, "top", "-b", "-d", "100ms", *args], capture_output=True, text=True,
                           env=self.env(**env), timeout=600)
        self.assertEqual(r.returncode, code, r.stderr)
        return r.stdout if code == OK else r.stderr


class Batch(TopTest):
    def sections(self, text):
        """{first word of the heading: rows, each a list of words}"""
        found = {}
        for block in text.split("\n\n")[1:]:
            heading, *rows = block.splitlines()
            found[heading.split()[0]] = [row.split() for row in rows]
        return found

    def test_a_frame(self):
        self.work_long()
        text = self.batch()
        self.assertRegex(text, r"^kopsd \S+, up \S+ \w+: 1 user, 3 sessions, 2 buffers, mapped ")
        s = self.sections(text)
        self.assertEqual(s["DEVICE"][0][0], "cpu")
        self.assertGreater(float(s["DEVICE"][0][1].rstrip("%")), 50)
        self.assertIn("||||||", text)
        self.assertEqual(s["DEVICE"][0][-2:], ["-", "-"])
        self.assertRegex(" ".join(s["DEVICE"][0]), r"\] \d+% \S+ \d+ \d+ [\d.]+/[\d.]+ [KMGT]iB - -$")
        self.assertEqual(len(s["USER"]), 1)
        self.assertEqual(s["USER"][0][1:4], ["3", "0", "1"])
        self.assertEqual({row[3] for row in s["SESS"]}, {"worker", "kops-top", "control"})
        first = s["SESS"][0]  # by device time
        self.assertEqual((first[2], first[3]), (str(os.getpid()), "worker"))
        self.assertRegex(" ".join(first), r" gemm f32 64×64×\d+ \d+/\d+, \S+ \w+ of \S+ m?s$")
        for line in text.splitlines():
            self.assertLessEqual(len(line.split("  gemm")[0]), 80)
            self.assertEqual(line, line.rstrip())

    def test_rates_and_order(self):
        """Two frames, sorted by jobs a second: the one that sends them comes first."""
        self.work_short()
        text = self.batch("--sort", "jobs", "-n", "2", "-d", "300ms")
        frames = re.split(r"\n\n(?=kopsd )", text)
        self.assertEqual(len(frames), 2)
        for frame in frames:
            s = self.sections(frame)
            self.assertEqual(s["SESS"][0][3], "worker")
            self.assertGreater(float(s["SESS"][0][5]), 10)
            self.assertGreater(float(s["USER"][0][4]), 10)
            self.assertEqual(s["SESS"][0][7:9], ["4.00", "KiB"])
            self.assertRegex(s["SESS"][0][9], r"\d")  # p99

    @unittest.skipIf(os.geteuid() != 0, "only root can play other users")
    def test_users_without_sessions_are_left_out(self):
        def come_and_go():
            os.seteuid(61001)
            self.daemon.connect().close()
        os.chmod(self.daemon.socket, 0o666)
        result(as_user(0, come_and_go))
        harness.eventually(lambda: self.control.stats()["sessions"] == 1)
        self.assertIn(61001, self.control.list_users())
        text = self.batch()
        self.assertIn(": 1 user, ", text)
        self.assertNotIn("61001", text)

    def test_documents(self):
        """One in each line, with the figures of the frame."""
        self.work_long()
        first, second = [json.loads(line) for line in self.batch("--json", "-n", "2", "--sort", "jobs").splitlines()]
        for d in (first, second):
            self.assertEqual((d["schema"], d["verb"], d["ok"]), (1, "top", True))
            (device,), (user,) = d["devices"], d["users"]
            self.assertTrue(0.5 < device["busy"] <= 1)
            self.assertTrue(0 < device["utilization"] <= 1)
            self.assertGreater(device["memory_used_bytes"] * device["memory_free_bytes"], 0)
            self.assertIsNone(device["temperature_c"])
            self.assertEqual((user["uid"], user["sessions"], user["running"]), (os.geteuid(), 3, 1))
            worker = next(s for s in d["sessions"] if s["client"] == "worker")
            self.assertEqual((worker["oldest"]["op"], worker["oldest"]["dtype"], worker["oldest"]["shape"][:2]),
                             ("gemm", "f32", [64, 64]))
            self.assertGreater(worker["device_share"], 0.5)
            self.assertEqual(worker["mapped_bytes"], user["mapped_bytes"])
            self.assertGreater(d["interval_us"], 1e5)
        self.assertGreater(second["uptime_us"], first["uptime_us"])
        self.daemon.signal(signal.SIGSTOP)
        try:
            r = subprocess.run([harness.KOPS_CLIENT, "top", "--json", "--timeout", "200ms"], capture_output=True, text=True,
                               env=self.env(), timeout=600)
        finally:
            self.daemon.signal(signal.SIGCONT)
        self.assertEqual(r.returncode, 4, r.stderr)
        self.assertEqual((json.loads(r.stdout)["ok"], json.loads(r.stdout)["verb"]), (False, "top"))
        self.assertTrue(r.stderr.startswith("kops-client top: "), r.stderr)

    def test_long_names_are_cut(self):
        self.client(name="a-name-that-is-longer")
        self.client(name="漢字の名前はこれより長い")
        text = self.batch()
        self.assertRegex(text, r" a-name-that… +0 ")
        self.assertRegex(text, r" 漢字の名前… +0 ")

    def test_mistakes(self):
        self.assertIn("device, jobs, queued or p99", self.batch("--sort", "name", code=USAGE))
        self.assertIn("--intervall", self.batch("--intervall", "3", code=USAGE))
        self.assertIn("kopsd", self.batch("--socket", "/nowhere/kopsd.sock", code=CONNECT))
        r = subprocess.run([harness.KOPS_CLIENT, "top"], capture_output=True, env=self.env(), timeout=600, text=True)
        self.assertEqual(r.returncode, USAGE)
        self.assertIn("--batch", r.stderr)


class Screen(TopTest):
    def open(self, *args, **env):
        """On a terminal of its own; what it wrote comes to self.text."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen([harness.KOPS_CLIENT, "top", "-d", "100ms", *args], stdin=follower, stdout=follower,
                                        stderr=follower, env=self.env(**env), start_new_session=True)
        os.close(follower)
        self.terminal, self.text = leader, ""
        self.addCleanup(os.close, leader)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)

    def read(self, seconds=0.05):
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.text += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # its end
                return False
        return True

    def see(self, words, seconds=20):
        """Between them and the next ones there may be the terminal's commands."""
        end = time.monotonic() + seconds
        while not re.search(rf"{words}\b", self.text) and self.read() and time.monotonic() < end:
            pass
        self.assertRegex(self.text, rf"{words}\b")

    def press(self, keys):
        """And have all drawn anew: else only what changed is written."""
        self.text = ""
        os.write(self.terminal, keys.encode() + b"\f")

    def end(self):
        self.press("q")
        while self.read():
            pass
        self.assertEqual(self.process.wait(20), OK)

    def test_keys(self):
        self.work_long()
        self.open()
        for words in ("kopsd", "DEVICE", "USER", "SESS", "worker", "gemm", "sorted by device"):
            self.see(words)
        self.assertRegex(self.text, r"\x1b\[3[123]m\|\|\|")  # the bar has a colour
        for key, words in (("j", "jobs"), ("w", "queued"), ("p", "p99"), ("d", "device"), ("+", "0.2"), ("-", "0.1")):
            self.press(key)
            self.see(words)
        self.end()
        self.assertIn("\x1b[?1049l", self.text)  # the terminal is as it was

    def test_a_page_is_moved(self):
        for i in range(30):
            self.client(name=f"session{i}")
        self.open("--sort", "p99")
        self.see("session29")
        self.assertNotRegex(self.text, r"session3\b")
        self.press("\x1b[6~\x1b[6~")
        self.see("session3")
        self.end()

    def test_without_colours(self):
        self.work_long()
        self.open(NO_COLOR="1")
        self.see("sorted by")
        self.end()
        self.assertNotRegex(self.text, r"\x1b\[[0-9;]*3[0-9]m")

    def test_an_unknown_terminal(self):
        self.open(TERM="none-such")
        self.see("--batch")
        self.assertEqual(self.process.wait(20), FAILED)

    def test_a_terminal_that_only_prints(self):
        for name in ("dumb", ""):
            self.open(TERM=name)
            while self.read():
                pass
            self.assertEqual(self.process.wait(20), OK)
            self.assertEqual(self.text.count("UTIL"), 1)
            self.assertNotIn("\x1b", self.text)

    def test_help(self):
        self.open()
        self.see("sorted by device")
        for key in "h?":
            self.press(key)
            self.see("draws all again")
            self.press("q")  # back, not away
            self.see("SESS")
        self.end()

    def test_count(self):
        self.open("-n", "2")
        while self.read():
            pass
        self.assertEqual(self.process.wait(20), OK)
        self.assertIn("DEVICE", self.text)


class Restart(TopTest):
    leaks_checked = False
    see, read, press, end, open = Screen.see, Screen.read, Screen.press, Screen.end, Screen.open

    def test_kopsd_comes_back(self):
        self.open("--timeout", "500ms")
        self.see("sorted by")
        self.daemon.stop()
        os.remove(self.daemon.log_path)
        self.see("cannot reach kopsd")
        self.daemon.start()
        type(self).control = self.daemon.connect(name="control")
        while "sorted by" not in self.text:
            self.press("")
            self.read(0.3)
        self.end()


if __name__ == "__main__":
    if not os.access(TOP, os.X_OK):
        print("skipped: kops-top is not built, for there was no ncurses")
        sys.exit(77)
    harness.main()
