"""kops-exporter: what it serves is Prometheus' format and what kopsd says, whether kopsd is there or not."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from support import harness, wire

EXPORTER = os.environ.get("KOPS_TEST_EXPORTER", "")
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "monitoring")
USAGE = 2
HALF = b"GET /metrics HTTP/1.1\r\nHost: loc"
PLACES = 128  # client/exporter/places.h
LISTENING = "0A"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? ([0-9.e+-]+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')
LABELS = {"device", "uid", "user", "version", "quantile"}


def parse(text):
    """({family: type}, {(name, frozenset of labels): value}); asserts the rules of the format, and those of names."""
    types, values, current = {}, {}, None
    assert text.endswith("\n")
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            current, _, about = line[7:].partition(" ")
            assert current not in types and about, line
            assert (next_line := next(lines)).startswith(f"# TYPE {current} "), next_line
            types[current] = next_line.rsplit(" ", 1)[1]
            assert (types[current] == "counter") == current.endswith("_total"), next_line
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        family = re.sub("_(sum|count)$", "", name) if types[current] == "summary" else name
        assert family == current, f"{line} below {current}"
        labels = frozenset(LABEL.findall(labels or ""))
        assert {key for key, _ in labels} <= LABELS and (name, labels) not in values, line
        values[name, labels] = float(value)
    return types, values


class Exporter:
    """A running one, at a free port, for one test."""

    def __init__(self, test, socket_path):
        self.process = subprocess.Popen([EXPORTER, "--listen", "127.0.0.1:0", "--socket", socket_path], text=True,
                                        stderr=subprocess.PIPE)
        test.addCleanup(self.process.stderr.close)
        test.addCleanup(self.process.kill)
        self.port = int(self.process.stderr.readline().rsplit(":", 1)[1])

    def request(self, path, method="GET"):
        """(response, its text)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request(method, path)
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r, text

    def scrape(self):
        r, text = self.request("/metrics")
        assert r.status == 200 and r.getheader("Content-Type").startswith("text/plain; version=0.0.4")
        return parse(text)

    def connect(self, data=b"", address="127.0.0.1"):
        """A connection from this address that has sent the data."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(address, 0))
        s.sendall(data)
        return s

    def up(self):
        return self.scrape()[1]["kops_up", frozenset()]

    def stop(self):
        """(exit code, what it logged after the first line)"""
        self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=600)[1]
        return self.process.returncode, log


class Serving(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.exporter = Exporter(self, self.daemon.socket)

    def tearDown(self):
        self.assertEqual(self.exporter.stop(), (0, ""))
        super().tearDown()

    def work(self, jobs):
        """So many jobs are done, and one fails behind two others. None is left."""
        c = self.client()
        a = c.import_new(4096)
        op = wire.copy(wire.view(a, [512]), wire.view(a, [512], offset=2048))
        for _ in range(jobs):
            c.submit(op)
        others, ids = self.occupy(20)
        self.refused("DEADLINE", c.wait, c.start_submit(op, deadline_us=1))
        for job in ids:
            others.wait(job)

    def test_values_are_those_of_kopsd(self):
        self.work(5)
        types, values = self.exporter.scrape()
        stats, users = self.control.stats(), self.control.list_users()

        def value(name, **labels):
            return values[name, frozenset(labels.items())]
        self.assertEqual(value("kops_up"), 1)
        self.assertEqual(value("kops_build_info", version=self.daemon.version().split()[1]), 1)
        for name in ("sessions", "buffers", "mapped_bytes", "pinned_bytes", "pool_bytes"):
            self.assertEqual(value(f"kops_{name}"), stats[name])
        self.assertEqual(len(stats["devices"]), 1)
        for d in stats["devices"]:
            for name in ("jobs_done_total", "jobs_failed_total", "resident_bytes"):
                self.assertEqual(value(f"kops_device_{name}", device=d["name"]), d[name.removesuffix("_total")])
            self.assertAlmostEqual(value("kops_device_busy_seconds_total", device=d["name"]), d["busy_us"] / 1e6)
            self.assertEqual(value("kops_device_disabled_kernels", device=d["name"]), 0)
            memory = [value(f"kops_device_memory{m}_bytes", device=d["name"]) for m in ("_used", "_free", "")]
            self.assertEqual(memory[0] + memory[1], memory[2])
            self.assertTrue(0 <= value("kops_device_utilization_ratio", device=d["name"]) <= 1)
            self.assertNotIn(("kops_device_power_watts", frozenset({("device", d["name"])})), values)
        (uid, u), = users.items()
        mine = {"uid": str(uid), "user": pwd.getpwuid(uid).pw_name}
        for name in ("sessions", "buffers", "mapped_bytes", "pinned_bytes", "resident_bytes", "prepared_bytes"):
            self.assertEqual(value(f"kops_user_{name}", **mine), u[name])
        usage = u["usage"]
        self.assertGreaterEqual(usage["jobs_done"], 5)
        for name in ("jobs_done", "jobs_failed", "flops"):
            self.assertEqual(value(f"kops_user_{name}_total", **mine), usage[name])
        self.assertEqual(value("kops_user_processed_bytes_total", **mine), usage["bytes"])
        for name, us in (("queue_seconds_total", "queue_us"), ("device_seconds_total", "device_us"),
                         ("job_duration_seconds_sum", "total_us")):
            self.assertAlmostEqual(value(f"kops_user_{name}", **mine), usage[us] / 1e6)
        for quantile, us in (("0.5", "p50_us"), ("0.99", "p99_us")):
            self.assertAlmostEqual(value("kops_user_job_duration_seconds", quantile=quantile, **mine), usage[us] / 1e6)
        self.assertEqual(types["kops_user_job_duration_seconds"], "summary")

    def test_counters_only_grow(self):
        types, before = self.exporter.scrape()
        self.work(3)
        counters = {name for name, kind in types.items() if kind == "counter"}
        after = self.exporter.scrape()[1]
        grown = {name for (name, labels), value in after.items()
                 if name in counters and value > before.get((name, labels), 0)}
        for (name, labels), value in before.items():
            if name in counters:
                self.assertGreaterEqual(after[name, labels], value, name)
        self.assertGreaterEqual(grown, {"kops_device_jobs_done_total", "kops_device_busy_seconds_total",
                                        "kops_user_jobs_done_total", "kops_user_jobs_failed_total"})

    def test_scrapes_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            ups = list(pool.map(lambda _: self.exporter.up(), range(40)))
        self.assertEqual(ups, [1] * 40)

    def test_other_requests(self):
        r, text = self.exporter.request("/")
        self.assertEqual(r.status, 200)
        self.assertIn('href="/metrics"', text)
        self.assertEqual(self.exporter.request("/other")[0].status, 404)
        self.assertEqual(self.exporter.request("/metrics", "HEAD")[1], "")
        r, _ = self.exporter.request("/metrics", "POST")
        self.assertEqual((r.status, r.getheader("Allow")), (405, "GET, HEAD"))

    def test_clients_that_leave_after_half_a_request(self):
        for _ in range(1000):
            self.exporter.connect(HALF).close()
        self.assertEqual(self.exporter.up(), 1)
        self.assertTrue(harness.eventually(lambda: self.connections() == 0))  # all are seen, at once

    def connections(self):
        """How many the exporter has: sockets beyond those for listening, for kopsd, and its own pairs."""
        folder = f"/proc/{self.exporter.process.pid}/fd"
        inodes = {f"socket:[{line.split()[9]}]" for line in tcp_lines() if line.split()[3] != LISTENING}
        return sum(os.readlink(f"{folder}/{fd}") in inodes for fd in os.listdir(folder))

    def test_clients_that_stay(self):
        """Whatever they have sent. All are at the address of the scrape."""
        for data in (b"", HALF, b"G", b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"):
            with contextlib.ExitStack() as all_of_them:
                for _ in range(1000):
                    all_of_them.enter_context(self.exporter.connect(data))
                self.assertEqual(self.exporter.up(), 1, data)
                self.assertLessEqual(self.connections(), PLACES + 1)

    def test_an_address_with_many_connections_takes_places_of_its_own(self):
        c = http.client.HTTPConnection("127.0.0.1", self.exporter.port, timeout=30)
        c.request("GET", "/metrics")
        c.getresponse().read()
        with contextlib.ExitStack() as all_of_them:
            for _ in range(300):
                all_of_them.enter_context(self.exporter.connect(HALF, "127.0.0.2"))
            mine = c.sock
            c.request("GET", "/metrics")
            self.assertEqual(c.getresponse().status, 200)
            self.assertIs(c.sock, mine)  # no new connection was needed
        c.close()

    def test_a_client_that_says_it_sends_no_more(self):
        with self.exporter.connect(b"GET /metrics HTTP/1.0\r\n\r\n") as s:
            s.shutdown(socket.SHUT_WR)
            with s.makefile("rb") as f:
                self.assertIn(b"kops_up 1\n", f.read())

    def test_many_requests_of_one_connection(self):
        with self.exporter.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50 +
                                   b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s, s.makefile("rb") as f:
            text = f.read()
        self.assertEqual(text.count(b"kops_up 1\n"), 50)
        self.assertEqual(text.count(b"HTTP/1.1 200 OK"), 51)

    def test_what_the_documents_use_is_there(self):
        served = set(self.exporter.scrape()[0])
        self.assertGreater(len(served), 30)
        for file, least in (("alerts.yml", 5), ("dashboard.json", 12)):
            with open(os.path.join(DOCS, file), encoding="utf-8") as f:
                used = set(re.findall(r"\bkops_[a-z_]+", f.read()))
            self.assertGreaterEqual(len(used), least)
            self.assertEqual(used - served - {f"{name}_count" for name in served}, set(), file)
        with open(os.path.join(DOCS, "dashboard.json"), encoding="utf-8") as f:
            json.load(f)

    def test_every_alert_is_explained(self):
        with open(os.path.join(DOCS, "alerts.yml"), encoding="utf-8") as f:
            alerts = re.findall(r"- alert: (\w+)", f.read())
        with open(os.path.join(DOCS, "..", "operations.md"), encoding="utf-8") as f:
            self.assertEqual(sorted(alerts), sorted(re.findall(r"^\| `(Kops\w+)` \|", f.read(), re.M)))

    @unittest.skipUnless(shutil.which("promtool"), "there is no promtool; Debian's package prometheus has it")
    def test_promtool(self):
        self.work(1)
        subprocess.run(["promtool", "check", "metrics"], input=self.exporter.request("/metrics")[1], text=True, check=True)
        subprocess.run(["promtool", "check", "rules", os.path.join(DOCS, "alerts.yml")], check=True)

    @unittest.skipUnless(shutil.which("prometheus") and harness.LONG, "a long test, for which prometheus must be installed")
    def test_prometheus(self):
        """A real one scrapes it, and answers a query and lists the alerts."""
        self.work(2)
        with tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "prometheus.yml")
            with open(config, "w", encoding="utf-8") as f:
                json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                           "rule_files": [os.path.abspath(os.path.join(DOCS, "alerts.yml"))],
                           "scrape_configs": [{"job_name": "kops", "static_configs": [
                               {"targets": [f"127.0.0.1:{self.exporter.port}"]}]}]}, f)
            at = f"127.0.0.1:{free_port()}"
            prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--web.listen-address={at}",
                                           f"--storage.tsdb.path={folder}/data"], stderr=subprocess.DEVNULL)
            try:
                self.assertTrue(harness.eventually(lambda: query(at, "kops_up") == [1], step=0.2))
                done = self.control.stats()["devices"][0]["jobs_done"]
                self.assertEqual(query(at, "kops_device_jobs_done_total"), [done])
                self.assertEqual(query(at, 'ALERTS{alertstate="firing"}'), [])
                self.assertEqual(query(at, "up"), [1])
            finally:
                prometheus.terminate()
                prometheus.wait()


def tcp_lines():
    with open("/proc/net/tcp", encoding="utf-8") as f:
        return f.read().splitlines()[1:]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def query(at, expression):
    """The values of an instant query; None while Prometheus starts."""
    try:
        with urllib.request.urlopen(f"http://{at}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=600) as r:
            return [float(s["value"][1]) for s in json.load(r)["data"]["result"]]
    except OSError:
        return None


class Absence(unittest.TestCase):
    """Without kopsd, and when it comes again."""

    def setUp(self):
        self.daemon = harness.Daemon()
        self.addCleanup(self.daemon.remove)

    def test_kopsd_comes_and_goes(self):
        exporter = Exporter(self, self.daemon.socket)
        types, _ = exporter.scrape()
        self.assertEqual(set(types), {"kops_up", "kops_exporter_build_info"})
        self.daemon.start()
        self.assertEqual(exporter.up(), 1)
        self.assertEqual(self.daemon.stop(), 0)
        self.assertEqual(exporter.up(), 0)
        took = []
        for _ in range(20):
            start = time.monotonic()
            self.assertEqual(exporter.up(), 0)
            took.append(time.monotonic() - start)
        self.assertLess(min(took), 1)  # nothing waits for one that is known to be away
        self.daemon.spawn()
        self.assertTrue(harness.eventually(lambda: exporter.up() == 1, step=0.05))
        self.assertEqual(self.daemon.stop(), 0)
        code, log = exporter.stop()
        self.assertEqual(code, 0)
        self.assertEqual(log.count("kopsd does not answer:"), 2)  # not for every scrape
        self.assertEqual(log.count("kopsd answers again"), 2)

    def test_a_kopsd_that_is_stuck(self):
        self.daemon.start()
        exporter = Exporter(self, self.daemon.socket)
        self.assertEqual(exporter.up(), 1)
        self.daemon.signal(signal.SIGSTOP)
        start = time.monotonic()
        self.assertEqual(exporter.up(), 0)
        self.assertLess(time.monotonic() - start, 60)  # 2 s, where the machine is not busy
        self.daemon.signal(signal.SIGCONT)
        self.assertEqual(exporter.up(), 1)
        exporter.stop()
        self.assertEqual(self.daemon.stop(), 0)

    def test_scrapes_at_once_of_one_that_is_stuck(self):
        """One question answers all that wait for it."""
        self.daemon.start()
        exporter = Exporter(self, self.daemon.socket)
        self.assertEqual(exporter.up(), 1)
        self.daemon.signal(signal.SIGSTOP)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            ups = list(pool.map(lambda _: exporter.up(), range(200)))
        self.assertLess(time.monotonic() - start, 120)  # one after the other they would take 400 s
        # Who comes while so many wait gets the answer before, and it is not said who comes first.
        self.assertGreaterEqual(ups.count(0), PLACES // 2)
        self.assertLessEqual(set(ups), {0, 1})
        self.daemon.signal(signal.SIGCONT)
        self.assertEqual(exporter.up(), 1)
        self.assertEqual(exporter.stop()[0], 0)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_stop_while_scrapes_wait(self):
        self.daemon.start()
        exporter = Exporter(self, self.daemon.socket)
        self.daemon.signal(signal.SIGSTOP)
        waiting = [exporter.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(20)]
        code, log = exporter.stop()
        self.assertEqual(code, 0, log)
        for s in waiting:
            s.close()
        self.daemon.signal(signal.SIGCONT)
        self.assertEqual(self.daemon.stop(), 0)

    def test_mistakes(self):
        taken = Exporter(self, self.daemon.socket)
        for args, code, sentence in ((["--listen", "here"], 1, "ADDRESS:PORT, not 'here'"),
                                     (["--listen", "127.0.0.1:65536"], 1, "ADDRESS:PORT, not"),
                                     (["--listen", f"127.0.0.1:{taken.port}"], 1, "in use"),
                                     (["--lisen", "127.0.0.1:0"], USAGE, "--listen"),
                                     (["more"], USAGE, "no arguments, got 'more'")):
            r = subprocess.run([EXPORTER, *args], capture_output=True, text=True, timeout=600)
            self.assertEqual(r.returncode, code, args)
            self.assertIn(sentence, r.stderr)
        taken.stop()


if __name__ == "__main__":
    if not EXPORTER:
        print("skipped: kops-exporter is not built, for there was no libmicrohttpd")
        sys.exit(77)
    harness.main()
