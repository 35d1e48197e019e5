"""Figures of users and sessions, and the latest jobs: right, complete, and shown to whom they may be."""
import os
import time
import unittest

from support import harness, wire
from support.harness import eventually
from support.wire import view
from test_users import ALICE, BOB, LAB, as_user, result

PAGE, TRACED = 32, 1024


class Figures(harness.DaemonTest):
    def operands(self, c, n=8):
        a, y = c.import_new(4 * n * n), c.import_new(4 * n * n)
        return view(a, [n, n]), view(y, [n, n])

    def mine(self, c):
        """The session of c, as the list shows it."""
        return next(s for s in c.list_sessions() if s["client"] == c.name)

    def named(self, name):
        c = self.client(name=name)
        c.name = name
        return c

    def test_a_session_and_its_user_are_counted_alike(self):
        c = self.named("counted")
        x, y = self.operands(c)
        before = c.list_users()[os.geteuid()]["usage"]
        receipts = [c.submit(wire.copy(x, y)) for _ in range(10)]
        self.refused("SHAPE", c.submit, wire.copy(x, view(y["buffer"], [4, 4])))  # no job
        s, after = self.mine(c), c.list_users()[os.geteuid()]
        self.assertEqual((s["uid"], s["pid"], s["buffers"]), (os.geteuid(), os.getpid(), 2))
        self.assertEqual((s["queued"], s["running"], s["oldest"]), (0, 0, None))
        u = s["usage"]
        self.assertEqual((u["jobs_done"], u["jobs_failed"], u["flops"], u["bytes"]), (10, 0, 0, 10 * 2 * 256))
        for key, of in (("queue_us", "queue_us"), ("total_us", "total_us"), ("device_us", "compute_us")):
            self.assertAlmostEqual(u[key], sum(r[of] for r in receipts), delta=1e-3)
            self.assertAlmostEqual(after["usage"][key] - before[key], u[key], delta=1e-3)
        self.assertEqual(after["usage"]["jobs_done"] - before["jobs_done"], 10)
        totals = sorted(r["total_us"] for r in receipts)
        self.assertLess(abs(u["p50_us"] / totals[4] - 1), 1 / 32)
        self.assertLess(abs(u["p99_us"] / totals[9] - 1), 1 / 32)

    def test_a_session_without_a_name_has_its_programs(self):
        c, named = self.client(name=""), self.client(name="own")
        with open("/proc/self/comm", encoding="utf-8") as f:
            program = f.read().rstrip("\n")
        self.assertEqual({s["client"] for s in c.list_sessions()}, {program, "own", "control"})
        self.assertEqual([s["client"] for s in c.list_sessions() if s["own"]], [program])
        self.assertEqual([s["client"] for s in named.list_sessions() if s["own"]], ["own"])

    def test_memory_of_a_session(self):
        """Of its buffers, as they count for its user, until they are dropped."""
        c, other = self.named("holds"), self.named("other")
        before = c.list_users()[os.geteuid()]

        def held():
            s, user = self.mine(c), c.list_users()[os.geteuid()]
            self.assertEqual(s["mapped_bytes"], user["mapped_bytes"] - before["mapped_bytes"])
            self.assertEqual(s["resident_bytes"], user["resident_bytes"] - before["resident_bytes"])
            return s["mapped_bytes"], s["resident_bytes"]
        self.assertEqual(held(), (0, 0))
        lent, imported, resident = c.lend(100000), c.import_new(5000), c.resident(1 << 20)
        self.assertEqual(held(), ((128 << 10) + 8192, 1 << 20))
        for refused in ({"buffer": lent, "bytes": 1}, {"buffer": 99, "bytes": 1 << 60}):
            with self.assertRaises(wire.Refused):
                c.call("alloc", refused)
        self.assertEqual(held(), ((128 << 10) + 8192, 1 << 20))
        c.drop(lent)
        c.drop(resident)
        self.assertEqual(held(), (8192, 0))
        c.drop(imported)
        self.assertEqual(held(), (0, 0))
        self.assertEqual((self.mine(other)["mapped_bytes"], self.mine(other)["resident_bytes"]), (0, 0))

    def test_memory_and_load_of_the_cpu(self):
        d = self.control.stats()["devices"][0]
        total = self.control.describe()["devices"][0]["memory_bytes"]
        self.assertEqual(d["memory_used_bytes"] + d["memory_free_bytes"], total)
        self.assertTrue(0 < d["memory_used_bytes"] < total)
        load = lambda: self.control.stats()["devices"][0]["utilization"]
        with self.daemon.connect() as c:
            c.start_submit(self.slow_op(c, 60000))
            self.assertTrue(eventually(lambda: load() > 0.8))
        self.assertTrue(eventually(lambda: load() < 0.2))

    def test_jobs_that_fail(self):
        c = self.named("fails")
        x, y = self.operands(c)
        _, ids = self.occupy(200)
        before = self.control.stats()["devices"][0]
        late = c.start_submit(wire.copy(x, y), deadline_us=1)
        cancelled = c.start_submit(wire.copy(x, y), queue=1)
        c.cancel(cancelled)
        for job in (late, cancelled):
            with self.assertRaises(wire.Refused):
                c.wait(job)
        u, device = self.mine(c)["usage"], self.control.stats()["devices"][0]
        self.assertEqual((u["jobs_done"], u["jobs_failed"], u["p50_us"]), (0, 2, 0))
        self.assertEqual(device["jobs_failed"] - before["jobs_failed"], 2)
        traced = {t["job"]: t for t in c.trace() if t["session"] == self.mine(c)["session"]}
        self.assertEqual({wire.STATUS_NAME[traced[j]["status"]] for j in (late, cancelled)}, {"DEADLINE", "CANCELLED"})
        self.assertEqual(traced[cancelled]["compute_us"], 0)
        self.assertEqual(len(ids), 2)

    def test_the_canary_is_nobodys_job(self):
        before = self.control.list_users(), self.control.stats()["devices"][0]
        self.control.ping()
        time.sleep(1.05)  # until the canary is no longer fresh
        self.control.ping()
        after = self.control.list_users(), self.control.stats()["devices"][0]
        self.assertEqual(before[0], after[0])
        for key in ("jobs_done", "running", "busy_us"):
            self.assertEqual(before[1][key], after[1][key])

    def test_a_long_job_shows_its_progress(self):
        """Parts are done, and the device's, the session's and the user's times grow while it runs."""
        c, other = self.named("long"), self.client()
        device_us = c.list_users()[os.geteuid()]["usage"]["device_us"]
        job = c.start_submit([self.slow_op(c, 50)] * 24)  # each is a part at least, whatever it was planned to take
        waiting = c.start_submit(self.slow_op(c, 1))
        shown, busy = [], []
        while not shown or shown[-1]["running"]:
            shown.append(next(s for s in other.list_sessions() if s["client"] == "long"))
            busy.append(other.stats()["devices"][0]["busy_us"])
            time.sleep(0.02)
        receipt = c.wait(job)["receipt"]
        c.wait(waiting)
        running = [s for s in shown if s["oldest"] and s["oldest"]["parts"] > 1]
        jobs = [s["oldest"] for s in running]
        self.assertEqual({(j["device"], j["op"], j["kernel"], j["ops"]) for j in jobs}, {("cpu", "gemm", "reference", 24)})
        self.assertEqual({j["dtype"] for j in jobs}, {wire.F32})
        self.assertEqual({tuple(j["shape"][:2]) for j in jobs}, {(64, 64)})
        self.assertEqual({(s["queued"], s["running"]) for s in running}, {(1, 1)})
        self.assertGreaterEqual(jobs[0]["parts"], 24)
        self.assertGreater(len({j["parts_done"] for j in jobs}), 5)
        for a, b in zip(jobs, jobs[1:]):
            self.assertLessEqual(a["parts_done"], b["parts_done"])
            self.assertLess(a["running_us"], b["running_us"])
        self.assertLessEqual(jobs[-1]["parts_done"], jobs[-1]["parts"])
        self.assertGreater(jobs[0]["estimate_us"], 0)
        for times in (busy, [s["usage"]["device_us"] for s in shown]):
            self.assertEqual(times, sorted(times))
            self.assertGreater(len(set(times)), 10)
        total = c.list_users()[os.geteuid()]["usage"]["device_us"] - device_us
        self.assertGreaterEqual(total, receipt["compute_us"])
        self.assertLess(total, 2 * receipt["total_us"])

    def test_sessions_come_in_pages(self):
        """At a page, one more, and with the longest names."""
        for n in (PAGE - len(self.control.list_sessions()), 1, PAGE + 1):
            for _ in range(n):
                self.client(name="x" * 64)
            page = self.control.call("list_sessions", {})["sessions"]
            everything = self.control.list_sessions()
            numbers = [s["session"] for s in everything]
            self.assertEqual(numbers, sorted(set(numbers), reverse=True))
            self.assertEqual(len(everything), self.control.stats()["sessions"])
            self.assertEqual([s["session"] for s in page["sessions"]], numbers[:PAGE])
            self.assertEqual(page["next"], numbers[PAGE - 1] if len(numbers) > PAGE else 0)

    def test_pages_that_are_not_there(self):
        for verb, body, members in (("list_users", "users", "users"), ("list_sessions", "sessions", "sessions"),
                                    ("trace", "traced_jobs", "jobs")):
            for before in (1, 2**32, 2**63, 2**64 - 1):
                page = self.control.call(verb, {"before": before})[body]
                self.assertLessEqual(len(page[members]), PAGE)
        self.assertEqual(self.control.call("list_sessions", {"before": 1})["sessions"], {"sessions": [], "next": 0})
        self.assertEqual(self.control.call("trace", {"before": 1})["traced_jobs"], {"jobs": [], "next": 0})

    def test_the_trace_keeps_the_latest(self):
        c = self.named("traced")
        x, y = self.operands(c)
        for _ in range(TRACED // 64):
            for job in [c.start_submit(wire.copy(x, y)) for _ in range(64)]:
                c.wait(job)
        r = c.submit([wire.gemm(x, x, y, kernel="reference"), wire.copy(x, y)])
        jobs = c.trace()
        numbers = [j["number"] for j in jobs]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] - TRACED, -1)))
        last = jobs[0]
        for key in ("queue_us", "upload_us", "compute_us", "download_us", "total_us", "device"):
            self.assertEqual(last[key], r[key])
        self.assertEqual((last["op"], last["kernel"], last["ops"], last["status"]), ("gemm", "reference", 2, 0))
        self.assertEqual((last["uid"], last["pid"], last["session"]),
                         (os.geteuid(), os.getpid(), self.mine(c)["session"]))
        self.assertEqual(last["flops"], sum(o["flops"] for o in r["ops"]))
        self.assertEqual(last["bytes"], sum(o["bytes"] for o in r["ops"]))
        ages = [j["age_us"] for j in jobs]
        self.assertEqual(ages, sorted(ages))

    def test_sizes_are_told_as_they_were_sent(self):
        """In receipts and in the trace, of each op; not as they are folded to be computed."""
        c = self.named("sizes")
        a = c.import_new(4096)
        m = lambda shape, at, dtype=wire.F32, **more: view(a, shape, offset=at, dtype=dtype, **more)
        cases = [(wire.gemm(m([4, 8], 0), m([8, 2], 256), m([4, 2], 512)), wire.F32, [4, 2, 8]),
                 (wire.gemm(m([3, 4, 8], 0), m([8, 2], 1024), m([3, 4, 2], 2048)), wire.F32, [3, 4, 2, 8]),
                 (wire.copy(m([2, 3, 4], 0, wire.F64), m([2, 3, 4], 1024, wire.F64)), wire.F64, [2, 3, 4]),
                 (wire.add(m([1, 8], 0), m([8], 64), m([4, 8], 1024)), wire.F32, [4, 8]),
                 (wire.transpose(m([4, 8], 0, wire.F16), m([8, 4], 1024, wire.F16)), wire.F16, [4, 8]),
                 (wire.softmax(m([2, 1, 8], 0, wire.BF16), m([2, 1, 8], 1024, wire.BF16)), wire.BF16, [2, 1, 8]),
                 (wire.copy(m([0, 8], 0), m([0, 8], 1024)), wire.F32, [0, 8])]
        before = time.monotonic_ns()
        for op, dtype, shape in cases:
            receipt = c.submit(op)
            self.assertEqual((receipt["ops"][0]["dtype"], receipt["ops"][0]["shape"]), (dtype, shape))
            traced = c.trace()[0]
            self.assertEqual((traced["dtype"], traced["shape"]), (dtype, shape))
            self.assertTrue(before < traced["ended_ns"] < time.monotonic_ns())
        receipt = c.submit([op for op, *_ in cases])
        self.assertEqual([(o["dtype"], o["shape"]) for o in receipt["ops"]], [(d, s) for _, d, s in cases])
        self.assertEqual(c.trace()[0]["shape"], cases[0][2])

    def test_pages_of_the_longest_items_fit(self):
        """32 jobs and sessions whose figures are large, and whose names are."""
        huge = 1 << 31
        clients = [self.client(name="ä" * 32) for _ in range(PAGE)]
        for c in clients:
            a, y = c.import_new(64), c.import_new(64)
            x = view(a, [huge, 1, 1, 0], [0, 0, 0, 0])
            c.submit(wire.copy(x, view(y, [huge, 1, 1, 0], [0, 0, 0, 0])))
        traced = self.control.call("trace", {})["traced_jobs"]
        self.assertEqual(len(traced["jobs"]), PAGE)
        self.assertEqual(traced["jobs"][0]["shape"], [huge, 1, 1, 0])
        self.assertEqual(len(self.control.call("list_sessions", {})["sessions"]["sessions"]), PAGE)

    def test_runs_of_a_ring(self):
        c = self.named("ring")
        x, y = self.operands(c)
        c.submit(wire.copy(x, y), prepare=7)
        ring = c.open_ring(4)
        for _ in range(5):
            ring.put(7)
            self.assertEqual(ring.wait()["status"], 0)
        s = self.mine(c)
        self.assertEqual((s["usage"]["jobs_done"], s["prepared"]), (6, 1))
        latest = c.trace()[0]
        self.assertEqual((latest["prepared"], latest["op"]), (1, "copy"))
        self.assertTrue(any(j["ring"] for j in c.trace()[:5]))
        ring.close()

    def test_a_session_that_dies_leaves_its_users_figures(self):
        before = self.control.list_users()[os.geteuid()]["usage"]
        with self.daemon.connect() as c:
            c.start_submit(self.slow_op(c, 100))
            c.start_submit(self.slow_op(c, 100))
            c.stats()

        def failed():
            now = self.control.list_users()[os.geteuid()]
            return now["running"] + now["queued"] == 0 and now["usage"]
        after = eventually(failed)
        done = after["jobs_done"] - before["jobs_done"]
        self.assertEqual(done + after["jobs_failed"] - before["jobs_failed"], 2)
        self.assertGreater(after["device_us"], before["device_us"])


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Others(harness.DaemonTest):
    """Alice is in the daemon's group, Bob in another."""
    open_socket = True
    groups = {ALICE: (os.getegid(), LAB), BOB: (LAB,)}

    def look(self):
        with self.daemon.connect(name="look") as c:
            a = c.import_new(256)
            c.submit(wire.copy(view(a, [8]), view(a, [8], offset=128)))
            return ({uid for uid in c.list_users()}, {s["uid"] for s in c.list_sessions()}, {j["uid"] for j in c.trace()})

    def seen_by(self, uid):
        return result(as_user(uid, self.look, groups=self.groups[uid]))

    def test_who_sees_whom(self):
        for see_others, colleague, other in ((1, True, False), (0, False, False), (2, True, True), (1, True, False)):
            self.daemon.reload(see_others=see_others)
            self.seen_by(BOB)
            self.look()
            for uid, all_of_them in ((ALICE, colleague), (BOB, other)):
                users, sessions, jobs = self.seen_by(uid)
                if all_of_them:
                    self.assertGreaterEqual(users, {0, ALICE, BOB}, see_others)
                    self.assertGreaterEqual(sessions, {0, uid})
                    self.assertGreaterEqual(jobs, {0, BOB})
                else:
                    self.assertEqual((users, sessions, jobs), ({uid}, {uid}, {uid}), see_others)
            self.assertGreaterEqual(self.look()[0], {0, ALICE, BOB})

    def test_few_sessions_among_many(self):
        """A page ends where kopsd would look at too many that its reader may not see; all pages have all sessions."""
        self.daemon.reload(see_others=0)
        self.addCleanup(self.daemon.reload, see_others=1)

        def look():
            clients = []
            for uid, n in (BOB, 1), (0, 300), (BOB, 1):
                clients += [self.daemon.connect_as(uid) for _ in range(n)]
            page = clients[-1].call("list_sessions", {})["sessions"]
            return ([s["own"] for s in page["sessions"]], page["next"] > 0, [s["uid"] for s in clients[-1].list_sessions()],
                    [s["uid"] for s in clients[1].list_sessions()][:302])
        self.assertEqual(result(as_user(0, look)), ([1], True, [BOB, BOB], [BOB] + [0] * 300 + [BOB]))

    def test_users_come_in_pages(self):
        """Their figures outlive their sessions, the latest 256 of them, and those of users with a socket of their own."""
        stay = 256 + 64  # root among the latter
        def all_of_them():
            for uid in range(70000, 70400):
                self.daemon.connect_as(uid, name="brief").close()
        self.assertIsNone(result(as_user(0, all_of_them)))
        # A user leaves when its connection is closed, which is up to a thread; then the users of before go.
        self.assertTrue(eventually(lambda: len(self.control.list_users()) == stay))
        users = self.control.list_users()
        numbers = list(users)
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        # Whoever had more of the loop than others is remembered for longer, in the place of one of the next.
        self.assertEqual(numbers[:200], list(range(70399, 70199, -1)))
        self.assertEqual(numbers[-1], 0)  # root has a session
        self.assertEqual(users[70200]["sessions"], 0)
        page = self.control.call("list_users", {"before": 70200})["users"]
        self.assertEqual(([u["uid"] for u in page["users"]], page["next"]), (list(range(70199, 70199 - PAGE, -1)), 70200 - PAGE))
        page = self.control.call("list_users", {"before": numbers[-7]})["users"]
        self.assertEqual(([u["uid"] for u in page["users"]], page["next"]), (numbers[-6:], 0))


if __name__ == "__main__":
    harness.main()
