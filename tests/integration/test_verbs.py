"""Every verb, every status that the daemon gives, buffers and jobs as docs/protocol.md promises them."""
import os
import pathlib
import re
import time

from support import harness, wire
from support.harness import eventually, floats, unfloats
from support.wire import RESIDENT, view


def zeros(n):
    return bytes(4 * n)


class Verbs(harness.DaemonTest):
    def test_welcome_tells_the_limits(self):
        w = self.client().welcome
        self.assertEqual(w["version"], 1)
        self.assertTrue(w["daemon"].startswith("kopsd "))
        self.assertEqual((w["max_datagram_bytes"], w["max_ops"]), (16384, 64))
        self.assertEqual((w["max_buffers"], w["max_jobs"]), (1024, 256))

    def test_describe(self):
        d = self.client().describe()
        self.assertEqual([x["name"] for x in d["devices"]], ["cpu"])
        self.assertGreater(d["devices"][0]["memory_bytes"], 1 << 20)
        self.assertEqual(d["devices"][0]["disabled_kernels"], "")
        ops = re.findall(r"^X\((\w+)\)", (pathlib.Path(__file__).parents[2] / "proto/ops.def").read_text(), re.M)
        self.assertEqual({k["op"] for k in d["kernels"]}, set(ops))
        for k in d["kernels"]:
            self.assertEqual(k["device"], "cpu")
            self.assertTrue(k["name"] and k["idea"] and k["takes"] and "f32" in k["dtypes"])

    def test_stats_count(self):
        before = self.control.stats()
        c = self.client()
        a, y = c.import_new(4096), c.import_new(8192)
        r = c.resident(100)
        c.submit(wire.add(view(a, [4]), view(a, [4]), view(y, [4])))
        c.submit(wire.copy(view(a, [4]), view(r, [4])))
        now = self.control.stats()
        self.assertEqual(now["sessions"], before["sessions"] + 1)
        self.assertEqual(now["buffers"], before["buffers"] + 3)
        self.assertEqual(now["mapped_bytes"], before["mapped_bytes"] + 12288)
        self.assertEqual(now["devices"][0]["resident_bytes"], 100)
        self.assertEqual(now["devices"][0]["jobs_done"], before["devices"][0]["jobs_done"] + 2)
        self.assertGreater(now["uptime_us"], before["uptime_us"])

    def test_replies_can_be_shown(self):
        """They quote what was asked for, without what would drive a terminal."""
        c = self.client()
        a = c.import_new(64)
        op = wire.add(view(a, [4]), view(a, [4]), view(a, [4]))
        name = "a\x1b[2J\x9b\u202e\nb"
        self.assertIn('"a?[2J???b"', self.refused("DEVICE", c.submit, op, device=name).message)
        self.assertIn("a?[2J???b", self.refused("UNSUPPORTED", c.submit, {**op, "kernel": name}).message)

    def test_busy_time_grows(self):
        """What was told while a job ran may be more than it took: then it stands still until that is caught up."""
        before = self.control.stats()["devices"][0]["busy_us"]
        c = self.client()
        a, y = c.import_new(1 << 20), c.import_new(1 << 20)

        def grew():
            c.submit(wire.add(view(a, [1 << 18]), view(a, [1 << 18]), view(y, [1 << 18])))
            return self.control.stats()["devices"][0]["busy_us"] > before
        self.assertTrue(harness.eventually(grew, step=0))

    def test_ping_runs_a_canary(self):
        self.assertTrue(harness.eventually(
            lambda: self.control.stats()["devices"][0]["canary_age_us"] > 1_000_000, 5, 0.1))
        self.assertEqual(self.control.ping()["devices"], 1)
        self.assertLess(self.control.stats()["devices"][0]["canary_age_us"], 1_000_000)

    def test_many_pings_at_once(self):
        time.sleep(1.1)  # the canary is no longer fresh: all of these wait for one
        c = self.client()
        ids = [c.start("ping", {}) for _ in range(100)]
        for id in ids:
            self.assertEqual(c.wait(id)["pong"]["devices"], 1)

    def test_a_whole_job_without_waiting(self):
        c = self.client(hello=False)
        fd_a, fd_y = wire.memfd(4096), wire.memfd(4096)
        os.pwrite(fd_a, floats([1, 2, 3, 4]), 0)
        hello = c.start("hello", {"version_min": 1, "version_max": 1, "client": "hurry"})
        first, a = c.start_import(fd_a, 4096)
        second, y = c.start_import(fd_y, 4096)
        job = c.start_submit(wire.transpose(view(a, [2, 2]), view(y, [2, 2])))
        self.assertEqual(c.wait(job)["receipt"]["device"], "cpu")
        self.assertEqual(c.order, [hello, first, second, job])
        self.assertEqual(unfloats(os.pread(fd_y, 16, 0)), [1, 3, 2, 4])
        os.close(fd_a)
        os.close(fd_y)

    def test_receipt(self):
        c = self.client()
        a, y = c.import_new(4096), c.import_new(4096)
        m = [view(a, [8, 4]), view(a, [4, 16]), view(y, [8, 16])]
        r = c.submit([wire.gemm(*m), wire.gemm(*m, kernel="reference")])
        self.assertEqual([o["op"] for o in r["ops"]], ["gemm", "gemm"])
        self.assertEqual(r["ops"][0]["flops"], 2.0 * 8 * 4 * 16)
        self.assertEqual(r["ops"][1]["kernel"], "reference")
        self.assertEqual(r["ops"][1]["why"], "asked for by name")
        self.assertGreater(r["compute_us"], 0)
        self.assertGreaterEqual(r["total_us"], r["queue_us"] + r["compute_us"])

    def test_receipt_says_how_long_a_job_was_queued(self):
        """At least as long as Stats shows it, at most from its Submit to its reply. Both hold on any machine."""
        c = self.client()
        a, y = c.import_new(4096), c.import_new(4096)
        ms, shown = 50, 0
        while shown < 0.001:
            ids = [c.start_submit(self.slow_op(c, ms))]
            sent = time.monotonic()
            ids.append(c.start_submit(wire.copy(view(a, [1]), view(y, [1]))))
            c.stats()  # by now both have arrived
            arrived = asked = last_shown = time.monotonic()
            while c.stats()["devices"][0]["queued"]:
                last_shown, asked = asked, time.monotonic()
            queued_us = [c.wait(i)["receipt"]["queue_us"] for i in ids][1]
            shown, ms = last_shown - arrived, 2 * ms
        self.assertGreaterEqual(queued_us, shown * 1e6)
        self.assertLessEqual(queued_us, (time.monotonic() - sent) * 1e6)

    def test_receipt_tells_what_was_passed_over(self):
        c = self.client()
        a, y = c.import_new(4096), c.import_new(4096)
        m = [view(a, [8, 4]), view(a, [4, 16]), view(y, [8, 16])]
        r = c.submit([wire.gemm(*m), wire.gemm(*m, kernel="reference")])
        self.assertEqual([o["passed_over"] for o in r["ops"]], ["reference", "openblas"])

    def test_a_timed_job(self):
        c = self.client()
        a, y = c.import_new(4096, floats([1.0, -2.0, 0.5])), c.import_new(4096)
        r = c.submit(wire.gemm(view(a, [1, 3]), view(a, [3, 1]), view(y, [1, 1])), timed=1)
        self.assertEqual(unfloats(c.maps[y][:4]), [5.25])
        self.assertEqual((r["ops"][0]["op"], r["ops"][0]["flops"], r["ops"][0]["bytes"]), ("gemm", 6.0, 28.0))
        self.assertGreater(r["compute_us"], 0)

    def test_a_job_of_64_ops_is_answered_in_one_datagram(self):
        c = self.client()
        a = c.import_new(4096, floats([1.0]))
        v = view(a, [1])
        # A layout that the first kernel does not take gives the longest reasons.
        r = c.submit([wire.add(v, v, v)] * 10)
        self.assertEqual(unfloats(c.maps[a][:4]), [1024.0])
        x = view(a, [16, 16], [0, 0], offset=512)
        r = c.submit([wire.gemm(x, x, view(a, [16, 16], offset=1024))] * 64)
        self.assertEqual(len(r["ops"]), 64)

    def test_ids_are_reused_after_the_answer(self):
        c = self.client()
        a, y = c.import_new(64), c.import_new(64)
        op = wire.copy(view(a, [16]), view(y, [16]))
        for _ in range(100):
            c.submit(op, id=77)
        for _ in range(100):
            c.drop(a)
            fd = wire.memfd(64)
            c.import_fd(fd, 64, buffer=a)
            os.close(fd)

    def test_large_ids(self):
        c = self.client()
        top = (1 << 64) - 1
        fd = wire.memfd(64)
        c.import_fd(fd, 64, buffer=top)
        os.close(fd)
        c.submit(wire.add(view(top, [4]), view(top, [4]), view(top, [4])), id=top, queue=(1 << 32) - 1)
        c.drop(top)


class Backlog(harness.DaemonTest):
    settings = {"max_backlog": 100}

    def start_estimated_at(self, c, s):
        """A job of so many seconds by its estimate, which the machine's speed does not change. It may take much longer."""
        n, k = 64, int(s * 81920)
        a, y = c.import_new(4096), c.import_new(n * n * 4)
        return c.start_submit(wire.gemm(view(a, [n, k], [0, 0]), view(a, [k, n], [0, 0]), view(y, [n, n]),
                                        kernel="reference"))

    def test_busy_backlog(self):
        """More estimated work than max-backlog; the answer says when to come again, and that is true."""
        c = self.client()
        a = c.import_new(4096)
        copy = wire.copy(view(a, [1]), view(a, [1], offset=64))
        first = self.start_estimated_at(c, 0.2)
        why = self.refused("BUSY", c.submit, copy)
        self.assertIn("max-backlog", why.message)
        self.assertGreaterEqual(why.reply["retry_after_us"], 1000)
        c.wait(first)
        time.sleep(why.reply["retry_after_us"] / 1e6)
        c.submit(copy)

    def test_the_backlog_shrinks_while_a_job_runs(self):
        """And a job whose client has gone, when nobody else wants its device, does not run on to its end."""
        c = self.client()
        self.start_estimated_at(c, 10)
        with self.client() as other:
            a = other.import_new(4096)
            copy = wire.copy(view(a, [1]), view(a, [1], offset=64))
            first = self.refused("BUSY", other.submit, copy).reply["retry_after_us"]
            time.sleep(0.5)
            later = self.refused("BUSY", other.submit, copy).reply["retry_after_us"]
            self.assertTrue(0 < later < first - 250_000, (first, later))
            before = self.daemon.cpu_s()
            c.close()
            self.assertTrue(eventually(lambda: not self.control.any_running()))
            other.submit(copy)
            self.assertLess(self.daemon.cpu_s() - before, 1.5)


class Statuses(harness.DaemonTest):
    """A table of requests that are refused. Every status of the daemon has to be produced."""

    settings = {"max_resident_per_uid": 1 << 44, "max_mapped_per_uid": "1M", "max_buffers": 8, "max_jobs": 4}
    # No test with a CPU device alone can see these.
    not_here = {
        "PROTOCOL": "ends the session without a reply: test_hostile.py",
        "INTERRUPTED": "arises in libkops when a daemon is replaced",
        "FAULT": "a device has to fail, and the CPU cannot",
        "SHUTDOWN": "test_lifecycle.py sends SIGTERM",
    }
    produced = set()

    def refused(self, status, action, *args, **kwargs):
        caught = super().refused(status, action, *args, **kwargs)
        self.produced.add(status)
        return caught

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        missing = {n for n, code in wire.STATUS.items() if code < 32} - cls.produced - set(cls.not_here)
        if missing:
            raise AssertionError(f"no test produced {sorted(missing)}")

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.a = self.c.import_new(4096)
        self.y = self.c.import_new(4096)

    def submit_refused(self, name, op, **options):
        return self.refused(name, self.c.submit, op, **options)

    def test_invalid(self):
        c, a, y = self.c, self.a, self.y
        self.submit_refused("INVALID", [])
        self.submit_refused("INVALID", {"kernel": ""})
        self.submit_refused("INVALID", {"add": {"a": view(a, [1])}})
        self.submit_refused("INVALID", wire.copy(view(a, [1]), view(y, [1])), priority=3)
        self.submit_refused("INVALID", wire.copy(view(a, [1], offset=2), view(y, [1])))
        self.submit_refused("INVALID", wire.softmax(view(a, [4]), view(y, [4]), scale=float("inf")))
        self.submit_refused("INVALID", wire.gemm(view(a, [1, 1]), view(a, [1, 1]), view(y, [1, 1]), precision=4))
        self.refused("INVALID", lambda: c.wait(c.start_alloc(0)[0]))
        self.refused("INVALID", lambda: c.wait(c.start_alloc(64, buffer=0)[0]))
        self.refused("INVALID", lambda: c.wait(c.start_alloc(64, kind=2)[0]))
        fd = wire.memfd(4096)
        self.refused("INVALID", c.import_fd, fd, 0)
        self.refused("INVALID", c.import_fd, fd, 4096, buffer=0)
        os.close(fd)

    def test_client_name(self):
        self.client(name="x" * 64)
        c = self.client(hello=False)
        self.refused("INVALID", c.hello, name="x" * 65)
        self.assert_ended(c)

    def test_range(self):
        a, y = self.a, self.y
        for v in [view(a, [1025]), view(a, [1024], offset=4), view(a, [2], [-1]), view(a, [2], [1 << 62]),
                  view(a, [1 << 63]), view(a, [1 << 40, 1 << 40]), view(a, [2], [-(1 << 63)]),
                  view(a, [1], offset=4096), view(a, [1], offset=(1 << 64) - 4), view(a, [0], offset=4100),
                  view(a, [(1 << 64) - 1, (1 << 64) - 1], [0, 0])]:
            self.submit_refused("RANGE", wire.copy(v, view(y, [1])))
        self.c.submit(wire.copy(view(a, [1], offset=4092), view(y, [1])))
        self.c.submit(wire.copy(view(a, [1024]), view(y, [1024])))

    def test_shape(self):
        a, y = self.a, self.y
        self.submit_refused("SHAPE", wire.copy(view(a, []), view(y, [1])))
        self.submit_refused("SHAPE", wire.copy(view(a, [1] * 5), view(y, [1] * 5)))
        self.submit_refused("SHAPE", wire.copy(view(a, [2, 2], [1]), view(y, [2, 2])))
        self.submit_refused("SHAPE", wire.copy(view(a, [2]), view(y, [3])))
        self.submit_refused("SHAPE", wire.gemm(view(a, [2, 3]), view(a, [2, 3]), view(y, [2, 3])))
        why = self.submit_refused("SHAPE", [wire.copy(view(a, [1]), view(y, [1])),
                                            wire.copy(view(a, [2]), view(y, [1]))])
        self.assertIn("op 2 of 2 (copy)", why.message)

    def test_dtype(self):
        a, y = self.a, self.y
        self.submit_refused("DTYPE", wire.copy(view(a, [1], dtype=0), view(y, [1])))
        self.submit_refused("DTYPE", wire.copy(view(a, [1], dtype=9), view(y, [1])))
        self.submit_refused("DTYPE", wire.copy(view(a, [1], dtype=wire.F64), view(y, [1])))
        self.submit_refused("DTYPE", wire.softmax(view(a, [1], dtype=wire.F16), view(y, [1], dtype=wire.BF16)))

    def test_overlap(self):
        a = self.a
        self.submit_refused("OVERLAP", wire.copy(view(a, [8]), view(a, [8], offset=4)))
        self.submit_refused("OVERLAP", wire.copy(view(a, [4]), view(self.y, [4], [0])))
        self.submit_refused("OVERLAP", wire.transpose(view(a, [4, 4]), view(a, [4, 4])))
        self.submit_refused("OVERLAP", wire.gemm(view(a, [2, 2]), view(a, [2, 2]), view(a, [2, 2])))

    def test_not_found(self):
        self.submit_refused("NOT_FOUND", wire.copy(view(self.a, [1]), view(999, [1])))
        self.submit_refused("NOT_FOUND", wire.copy(view(0, [1]), view(self.y, [1])))
        self.refused("NOT_FOUND", self.c.drop, 999)
        self.refused("NOT_FOUND", self.c.cancel, 999)

    def test_exists(self):
        fd = wire.memfd(4096)
        self.refused("EXISTS", self.c.import_fd, fd, 4096, buffer=self.a)
        os.close(fd)
        self.refused("EXISTS", lambda: self.c.wait(self.c.start_alloc(64, buffer=self.a)[0]))
        op = self.slow_op(self.c, 200)
        self.c.start_submit(op, id=5000)
        self.c.start_submit(op, id=5000)
        self.assertEqual(wire.STATUS_NAME[self.c.receive()["status"]], "EXISTS")
        self.produced.add("EXISTS")
        self.assertEqual(self.c.receive()["status"], 0)

    def test_unsupported(self):
        why = self.submit_refused("UNSUPPORTED", {"kernel": "warp", **wire.add(*[view(self.a, [1])] * 2,
                                                                               view(self.y, [1]))})
        self.assertIn("vectorised", why.message)

    def test_device(self):
        why = self.submit_refused("DEVICE", wire.copy(view(self.a, [1]), view(self.y, [1])), device="gpu7")
        self.assertIn("gpu7", why.message)
        self.refused("DEVICE", self.c.resident, 64, device="tpu")
        self.c.submit(wire.copy(view(self.a, [1]), view(self.y, [1])), device="cpu")

    def test_nomem(self):
        size = self.c.describe()["devices"][0]["memory_bytes"]
        self.refused("NOMEM", self.c.resident, size + 1)
        self.refused("NOMEM", self.c.resident, (1 << 44) - 1)

    def test_quota_of_bytes(self):
        page = 4096
        fd = wire.memfd(1 << 21)
        held = self.control.stats()["mapped_bytes"]
        room = (1 << 20) - held
        self.refused("QUOTA", self.c.import_fd, fd, room + 1)
        b = self.c.import_fd(fd, room)
        self.refused("QUOTA", self.c.import_fd, fd, 1)
        self.c.drop(b)
        self.c.import_fd(fd, room - page)
        self.c.import_fd(fd, 1)
        self.refused("QUOTA", lambda: self.c.wait(self.c.start_alloc(1)[0]))
        os.close(fd)

    def test_lent_memory_is_charged_by_what_it_takes(self):
        """One byte costs a whole segment of 64 KiB: else a quota of 1 MiB would let a user take gigabytes."""
        held = self.control.stats()
        self.c.lend(1)
        now = self.control.stats()
        self.assertEqual(now["mapped_bytes"] - held["mapped_bytes"], now["pool_bytes"] - held["pool_bytes"])

    def test_quota_of_buffers(self):
        held = self.control.stats()["buffers"]
        limit = self.c.welcome["max_buffers"]
        fd = wire.memfd(4096)
        buffers = [self.c.import_fd(fd, 4096) for _ in range(limit - 2)]
        self.refused("QUOTA", self.c.import_fd, fd, 4096)
        self.c.drop(buffers[0])
        self.c.import_fd(fd, 4096)
        os.close(fd)
        self.assertEqual(self.control.stats()["buffers"], held + limit - 2)

    def test_pending_buffers_count_even_when_dropped(self):
        """Alloc and Drop in turn, while the device is at work, must not pile up buffers without limit."""
        other, _ = self.occupy(5000)
        requests, drops = [], []
        for _ in range(100):
            r, b = self.c.start_alloc(8, RESIDENT)
            requests.append(r)
            drops.append(self.c.start("drop", {"buffer": b}))
        self.c.stats()  # now all of them have been read
        self.assertLessEqual(self.control.stats()["buffers"], self.before["buffers"] + 4 + 8)
        other.close()  # and its jobs end
        statuses = [wire.STATUS_NAME[self.c.wait_any(r)["status"]] for r in requests]
        self.assertEqual(set(statuses), {"OK", "QUOTA"})
        for d in drops:
            self.c.wait_any(d)

    def test_busy_max_jobs(self):
        op = self.slow_op(self.c, 20)
        ids = [self.c.start_submit(op) for _ in range(4)]
        why = self.submit_refused("BUSY", op)
        self.assertGreaterEqual(why.reply["retry_after_us"], 1000)
        for i in ids:
            self.c.wait(i)
        self.c.submit(op)

    def test_deadline(self):
        other, ids = self.occupy(300)
        copy = wire.copy(view(self.a, [1]), view(self.y, [1]))
        late = self.c.start_submit(copy, deadline_us=1000)
        self.refused("DEADLINE", self.c.wait, late)
        self.assert_busy()  # answered when it passes, not when the device is free
        relaxed = self.c.start_submit(copy, deadline_us=60_000_000)
        endless = self.c.start_submit(copy, deadline_us=(1 << 64) - 1)
        self.c.wait(relaxed)
        self.c.wait(endless)
        for i in ids:
            other.wait(i)

    def test_cancelled(self):
        self.occupy(200)
        self.c.maps[self.a][:4] = floats([7.0])
        job = self.c.start_submit(wire.copy(view(self.a, [1]), view(self.y, [1])))
        self.c.cancel(job)
        self.refused("CANCELLED", self.c.wait, job)
        self.assertEqual(unfloats(self.c.maps[self.y][:4]), [0.0])

    def test_lost(self):
        c = self.c
        r = c.resident(16, lost=True)
        whole, half = view(r, [4]), view(r, [2])
        c.maps[self.a][:16] = floats([1, 2, 3, 4])
        self.submit_refused("LOST", wire.copy(whole, view(self.y, [4])))
        c.submit(wire.copy(view(self.a, [2]), half))
        self.submit_refused("LOST", wire.copy(half, view(self.y, [2])))
        # The reader comes first inside the job: still lost.
        self.submit_refused("LOST", [wire.copy(whole, view(self.y, [4])), wire.copy(view(self.a, [4]), whole)])
        self.submit_refused("LOST", wire.gemm(view(self.a, [2, 2]), view(self.a, [2, 2]), view(r, [2, 2]), beta=1))
        # Written, then read, inside one job.
        c.submit([wire.copy(view(self.a, [4]), whole), wire.copy(whole, view(self.y, [4]))])
        self.assertEqual(unfloats(c.maps[self.y][:16]), [1, 2, 3, 4])
        c.submit(wire.copy(half, view(self.y, [2], offset=64)))
        self.assertEqual(unfloats(c.maps[self.y][64:72]), [1, 2])

    def test_what_is_lost_is_named_and_may_be_read_where_it_is_empty(self):
        r = self.c.resident(16, lost=True)
        self.c.submit(wire.copy(view(r, [0]), view(self.y, [0])))
        why = self.submit_refused("LOST", wire.copy(view(r, [1]), view(self.y, [1])))
        self.assertEqual(why.message, f"the content of RESIDENT buffer {r} was lost when kopsd restarted; "
                                      "write all of it with one op first")

    def test_lost_until_the_writer_has_run(self):
        c = self.c
        r = c.resident(16, lost=True)
        other, ids = self.occupy(200)
        writer = c.start_submit(wire.copy(view(self.a, [4]), view(r, [4])))
        reader = c.start_submit(wire.copy(view(r, [4]), view(self.y, [4])))
        c.cancel(writer)
        self.refused("CANCELLED", c.wait, writer)
        self.refused("LOST", c.wait, reader)
        for i in ids:
            other.wait(i)

    def test_lost_for_a_reader_that_overtakes_the_writer(self):
        c = self.c
        r = c.resident(16, lost=True)
        other, ids = self.occupy(200)
        writer = c.start_submit(wire.copy(view(self.a, [4]), view(r, [4])), queue=1)
        reader = c.start_submit(wire.copy(view(r, [4]), view(self.y, [4])), queue=2, priority=wire.HIGH)
        self.refused("LOST", c.wait, reader)
        c.wait(writer)
        for i in ids:
            other.wait(i)

    def test_fd(self):
        self.refused("FD", self.c.call, "import", {"buffer": 50, "bytes": 64})

    def test_version(self):
        for low, high, ok in [(1, 1, True), (0, 1, True), (1, 2, True), (0, 9, True), (2, 2, False),
                              (2, 9, False), (0, 0, False), (2, 1, False)]:
            c = self.client(hello=False)
            if ok:
                self.assertEqual(c.hello(low, high)["version"], 1)
                continue
            why = self.refused("VERSION", c.hello, low, high)
            self.assertIn("version 1", why.message)
            self.assert_ended(c)

    def test_readonly(self):
        c = self.c
        fd = wire.memfd(4096)
        os.pwrite(fd, floats([5.0]), 0)
        sealed = wire.memfd(4096, wire.SEALS | wire.fcntl.F_SEAL_WRITE)
        reader = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        for f, flag in [(fd, True), (sealed, False), (reader, False)]:
            b = c.import_fd(f, 4096, read_only=flag)
            self.submit_refused("READONLY", wire.copy(view(self.a, [1]), view(b, [1])))
            c.submit(wire.copy(view(b, [1]), view(self.y, [1])))
            c.drop(b)
        for f in (fd, sealed, reader):
            os.close(f)


if __name__ == "__main__":
    harness.main()
