"""Prepared jobs: kept by their Submit's number, run by it, forgotten; their limits, and what happens to their buffers."""
import os
import signal
import time
import unittest

import numpy as np

from support import harness, wire

N = 24
BIG = 192
STEP_BYTES = 1024  # of a message that kopsd reads in a turn


class Prepared(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.rng = np.random.default_rng(harness.SEED)

    def matrix(self, buffer, n=N):
        return np.frombuffer(self.c.maps[buffer], np.float32)[:n * n].reshape(n, n)

    def buffers(self, count=3, n=N):
        return [self.c.lend(4 * n * n) for _ in range(count)]  # which a GPU's graphs need

    def replace(self, buffer, size):
        """By another buffer of that id."""
        self.c.drop(buffer)
        self.c.next_buffer, later = buffer, self.c.next_buffer
        self.c.import_new(size)
        self.c.next_buffer = later

    def product(self, buffers, n=N, **options):
        return wire.gemm(*[wire.view(b, [n, n]) for b in buffers], **options)

    def fill(self, buffers, n=N):
        """Small integers: sums are exact. Returns the right product; the output is poisoned."""
        a, b, y = (self.matrix(x, n) for x in buffers)
        a[:], b[:] = self.rng.integers(-4, 5, (n, n)), self.rng.integers(-4, 5, (n, n))
        y[:] = np.nan
        return a @ b

    def check_run(self, number, buffers, n=N, **options):
        want = self.fill(buffers, n)
        receipt = self.c.run(number, **options)
        np.testing.assert_array_equal(self.matrix(buffers[2], n), want)
        return receipt

    def prepare(self, buffers, number=1, n=N, **options):
        want = self.fill(buffers, n)
        receipt = self.c.submit(self.product(buffers, n), prepare=number, **options)
        np.testing.assert_array_equal(self.matrix(buffers[2], n), want)
        return receipt

    def settle(self, number, buffers):
        """Runs it until nothing is left to tell: on a GPU, memory is pinned and kernels are tried before."""
        for _ in range(50):
            if self.check_run(number, buffers)["as_before"]:
                return
        self.fail("the daemon goes on telling about a prepared job")

    def refused(self, call, *args, **options):
        with self.assertRaises(wire.Refused) as caught:
            call(*args, **options)
        return caught.exception.name, caught.exception.message

    def long_job(self, **options):
        """Something that takes a quarter of a second, on buffers of its own; the id of its Submit."""
        x, y = self.c.import_new(64), self.c.import_new(64)
        terms = 1 << 20
        while True:
            start = time.monotonic()
            self.c.submit(wire.long_sum(x, y, terms))
            took = time.monotonic() - start
            if took > 0.02:
                break
            terms *= 4
        return self.c.start_submit(wire.long_sum(x, y, int(terms * 0.25 / took)), **options)


class Runs(Prepared):
    def test_the_daemon_says_that_it_prepares(self):
        self.assertEqual(self.c.welcome["prepares"], 1)

    def test_a_run_is_what_its_submit_would_be(self):
        buffers = self.buffers()
        first = self.prepare(buffers)
        self.assertEqual((first["prepared"], first["as_before"], len(first["ops"])), (1, 0, 1))
        self.settle(1, buffers)
        for _ in range(20):
            receipt = self.check_run(1, buffers)
            self.assertEqual((receipt["prepared"], receipt["as_before"], receipt["ops"], receipt["device"]),
                             (1, 1, [], ""))
            self.assertGreater(receipt["compute_us"], 0)
            self.assertGreaterEqual(receipt["total_us"], receipt["compute_us"])

    def test_without_a_number_nothing_is_kept(self):
        buffers = self.buffers()
        receipt = self.c.submit(self.product(buffers))
        self.assertEqual((receipt["prepared"], receipt["as_before"]), (0, 0))
        self.assertEqual(self.refused(self.c.run, 0)[0], "NOT_FOUND")

    def test_many_ops_in_order(self):
        a, b, y = self.buffers()
        views = [wire.view(x, [N, N]) for x in (a, b, y)]
        ops = [wire.add(views[0], views[1], views[2]), wire.transpose(views[2], views[0]),
               wire.add(views[0], views[2], views[1])]
        want = self.fill([a, b, y]) * 0
        for i in range(50):  # on a GPU kernels are tried at first
            self.fill([a, b, y])
            x = self.matrix(a) + self.matrix(b)
            want = x + x.T
            receipt = self.c.submit(ops, prepare=7) if i == 0 else self.c.run(7)
            np.testing.assert_array_equal(self.matrix(b), want)
            if self.daemon.settings["devices"] == "cpu":  # a GPU times jobs, not their ops
                self.assertEqual(len(receipt["ops_us"]), 3 * receipt["as_before"])
        self.assertEqual(receipt["as_before"], 1)

    def test_empty_and_tiny(self):
        b = self.c.import_new(64)
        self.c.submit(wire.copy(wire.view(b, [0, 3]), wire.view(b, [0, 3], offset=16)), prepare=1)
        self.c.submit(wire.add(*[wire.view(b, [1], offset=o) for o in (0, 4, 8)]), prepare=2)
        m = np.frombuffer(self.c.maps[b], np.float32)
        for i in range(5):
            m[:3] = i, 1, np.nan
            self.assertEqual(self.c.run(1)["prepared"], 1)
            self.c.run(2)
            self.assertEqual(m[2], i + 1)

    def test_prepared_first_run_later(self):
        buffers = self.buffers()
        self.fill(buffers)
        receipt = self.c.submit(self.product(buffers), prepare=3, only_prepare=1)
        self.assertTrue(np.isnan(self.matrix(buffers[2])).all())
        device = self.daemon.settings["devices"].split(",")[0]
        self.assertEqual((receipt["prepared"], receipt["device"], receipt["ops"][0]["op"]), (1, device, "gemm"))
        self.settle(3, buffers)

    def test_what_is_wrong_is_refused_and_not_kept(self):
        a, b, y = self.buffers()
        bad = wire.gemm(wire.view(a, [N, N]), wire.view(b, [N - 1, N]), wire.view(y, [N, N]))
        for options in ({}, {"only_prepare": 1}):
            self.assertEqual(self.refused(self.c.submit, bad, prepare=4, **options)[0], "SHAPE")
            name, message = self.refused(self.c.run, 4)
            self.assertEqual((name, message), ("NOT_FOUND", "no job is prepared as 4; send its Submit again"))

    def test_only_prepare_needs_a_number(self):
        name, message = self.refused(self.c.submit, self.product(self.buffers()), only_prepare=1)
        self.assertEqual(name, "INVALID")
        self.assertIn("requires prepare", message)

    def test_one_run_at_a_time(self):
        buffers = self.buffers()
        self.prepare(buffers, queue=5)
        out = self.long_job(queue=5)
        first = self.c.start("run", {"prepared": 1})
        name, message = self.refused(self.c.run, 1)
        self.assertEqual((name, message), ("EXISTS", "prepared job 1 is still running; wait for its reply"))
        self.c.wait(out)
        self.c.wait(first)
        self.check_run(1, buffers)

    def test_an_id_in_use(self):
        buffers = self.buffers()
        self.prepare(buffers)
        out = self.long_job()
        self.c.send_bytes(wire.encode("Request", {"id": out, "run": {"prepared": 1}}))
        self.assertEqual(self.c.receive()["status"], -wire.STATUS["EXISTS"])
        self.c.wait(out)

    def test_queues_and_cancel(self):
        """Runs go in the order of their queue; one that waits can be withdrawn, and run again."""
        buffers = self.buffers()
        self.prepare(buffers, queue=5)
        out = self.long_job(queue=5)
        self.fill(buffers)
        run = self.c.start("run", {"prepared": 1})
        self.c.cancel(run)
        with self.assertRaises(wire.Refused) as caught:
            self.c.wait(run)
        self.assertEqual(caught.exception.name, "CANCELLED")
        self.assertTrue(np.isnan(self.matrix(buffers[2])).all())
        self.c.wait(out)
        self.check_run(1, buffers)

    def test_deadlines(self):
        buffers = self.buffers()
        self.prepare(buffers, queue=5, deadline_us=10_000_000)
        for options, name in (({"deadline_us": 1000}, "DEADLINE"), ({}, None)):
            out = self.long_job(queue=5)
            if name:
                self.assertEqual(self.refused(self.c.run, 1, **options)[0], name)
            else:
                self.check_run(1, buffers, **options)
            self.c.wait(out)

    def test_what_a_run_restored_stays(self):
        """A later run that never starts does not undo it."""
        x, y = self.buffers(2)
        restored = self.c.resident(4 * N * N, lost=True)
        self.c.submit(wire.copy(wire.view(x, [N, N]), wire.view(restored, [N, N])), prepare=1, queue=5)
        out = self.long_job(queue=5)
        self.assertEqual(self.refused(self.c.run, 1, deadline_us=1000)[0], "DEADLINE")
        self.c.wait(out)
        self.c.submit(wire.copy(wire.view(restored, [N, N]), wire.view(y, [N, N])))

    def test_forgotten(self):
        buffers = self.buffers()
        self.prepare(buffers)
        self.c.forget(1)
        self.assertEqual(self.refused(self.c.run, 1)[0], "NOT_FOUND")
        self.assertEqual(self.refused(self.c.forget, 1)[0], "NOT_FOUND")
        self.prepare(buffers)
        self.check_run(1, buffers)

    def test_forgotten_while_out(self):
        buffers = self.buffers()
        self.prepare(buffers, queue=5)
        out = self.long_job(queue=5)
        want = self.fill(buffers)
        run = self.c.start("run", {"prepared": 1})
        self.c.forget(1)
        self.c.wait(out)
        self.assertEqual(self.c.wait(run)["receipt"]["prepared"], 0)
        np.testing.assert_array_equal(self.matrix(buffers[2]), want)
        self.assertEqual(self.refused(self.c.run, 1)[0], "NOT_FOUND")

    def test_a_number_may_be_given_again(self):
        first, second = self.buffers(), self.buffers()
        self.prepare(first)
        self.prepare(second)
        self.matrix(first[2])[:] = np.nan
        self.check_run(1, second)
        self.assertTrue(np.isnan(self.matrix(first[2])).all())

    def test_numbers_belong_to_their_session(self):
        self.prepare(self.buffers())
        with self.client() as other:
            self.assertEqual(self.refused(other.run, 1)[0], "NOT_FOUND")


class Buffers(Prepared):
    def test_a_dropped_buffer_is_missed_as_by_a_submit(self):
        buffers = self.buffers()
        self.prepare(buffers)
        used = self.c.stats()["buffers"]
        self.c.drop(buffers[1])  # answered, though a prepared job named it
        self.assertEqual(self.c.stats()["buffers"], used - 1)
        name, message = self.refused(self.c.run, 1)
        self.assertEqual((name, message), ("NOT_FOUND", f"op 1 of 1 (gemm): there is no buffer {buffers[1]}"))

    def test_another_buffer_of_that_id_takes_its_place(self):
        """With its own size and content."""
        buffers = self.buffers()
        self.prepare(buffers)
        for size, name in ((4 * N * N, None), (4 * N * N - 4, "RANGE"), (8 * N * N, None)):
            self.replace(buffers[1], size)
            if name:
                self.assertEqual(self.refused(self.c.run, 1)[0], name)
            else:
                self.check_run(1, buffers)

    def test_a_long_message_is_read_again(self):
        """Which takes several turns, before others and after them."""
        buffers = self.buffers(2)
        x, y = buffers
        ops = [wire.copy(*[wire.view(buffer, [1] * 4, [1 << 40] * 4, offset=4 * at) for buffer, at in ((x, i), (y, 63 - i))])
               for i in range(64)]
        self.assertGreater(len(wire.encode("Submit", {"ops": ops})), 2 * STEP_BYTES)
        self.c.submit(ops, prepare=1, only_prepare=1)
        for size in (256, 256, 260, 252, 256):
            self.replace(y, size)
            first, last = (np.frombuffer(self.c.maps[b], np.float32) for b in buffers)
            first[:], last[:] = self.rng.random(len(first)), np.nan
            if size < 256:
                self.assertEqual(self.refused(self.c.run, 1)[0], "RANGE")
            else:
                self.c.run(1)
                np.testing.assert_array_equal(last[:64], first[63::-1])

    def test_dropped_while_out(self):
        buffers = [self.c.import_new(4 * N * N) for _ in range(3)]  # whose content stays
        self.prepare(buffers, queue=5)
        out = self.long_job(queue=5)
        want, y = self.fill(buffers), self.matrix(buffers[2])
        run = self.c.start("run", {"prepared": 1})
        drops = [self.c.start("drop", {"buffer": b}) for b in buffers]
        self.c.wait(out)
        self.c.wait(run)
        np.testing.assert_array_equal(y, want)
        for drop in drops:
            self.c.wait(drop)
        self.assertEqual(self.refused(self.c.run, 1)[0], "NOT_FOUND")

    def test_resident_buffers(self):
        shared, resident = self.buffers(1)[0], self.c.resident(4 * N * N)
        there, back = [wire.copy(wire.view(x, [N, N]), wire.view(y, [N, N]))
                       for x, y in ((shared, resident), (resident, shared))]
        for i in range(5):
            self.matrix(shared)[:] = i
            for number, op in enumerate((there, back), 1):
                self.c.run(number) if i else self.c.submit(op, prepare=number)
                if number == 1:
                    self.matrix(shared)[:] = np.nan
            self.assertTrue((self.matrix(shared) == i).all())


class Graphs(Prepared):
    """Where there is a GPU these runs are graphs. Elsewhere the same has to hold of others."""

    def until_graph(self, number):
        """Kernels are tried before."""
        for _ in range(50):
            if self.c.run(number)["graph"] or not harness.ON_GPU:
                return
        self.fail("a run that comes again and again is no graph")

    def test_the_receipt_says_so(self):
        buffers = self.buffers()
        self.assertEqual(self.prepare(buffers, device=harness.FIRST_DEVICE)["graph"], 0)
        self.until_graph(1)
        for _ in range(20):
            self.assertEqual(self.check_run(1, buffers)["graph"], harness.ON_GPU)

    def test_memory_dropped_with_a_graph_out_becomes_anothers(self):
        """The device's own memory, which a later buffer gets with another content."""
        shared, pattern, back = self.buffers(3)
        view = {b: wire.view(b, [N, N]) for b in (shared, pattern, back)}
        self.matrix(shared)[:], self.matrix(pattern)[:] = 1, 7
        for number in range(1, harness.count(40, 10)):
            old = self.c.resident(4 * N * N, harness.FIRST_DEVICE)
            self.c.submit(wire.copy(view[shared], wire.view(old, [N, N])), prepare=number, device=harness.FIRST_DEVICE)
            self.until_graph(number)
            run, drop = self.c.start("run", {"prepared": number}), self.c.start("drop", {"buffer": old})
            new = self.c.resident(4 * N * N, harness.FIRST_DEVICE)
            there = self.c.start_submit(wire.copy(view[pattern], wire.view(new, [N, N])), device=harness.FIRST_DEVICE)
            self.assertEqual([self.c.wait(r)["status"] for r in (run, drop, there)], [0] * 3)
            self.assertEqual(self.refused(self.c.run, number)[0], "NOT_FOUND")
            self.matrix(back)[:] = np.nan
            self.c.submit(wire.copy(wire.view(new, [N, N]), view[back]), device=harness.FIRST_DEVICE)
            self.assertTrue((self.matrix(back) == 7).all())
            self.c.drop(new)

    def run_until_killed(self, ready):
        """A client's process, with all that its ring holds out."""
        self.c = self.daemon.connect()
        sets = [self.buffers(n=BIG) for _ in range(4)]
        for number, buffers in enumerate(sets, 1):
            self.fill(buffers, BIG)
            self.c.submit(self.product(buffers, BIG), prepare=number, queue=number, device=harness.FIRST_DEVICE)
            self.until_graph(number)
        ring = self.c.open_ring(64)
        for i in range(64):
            ring.put(1 + i % len(sets))
        os.write(ready, b"x")
        while True:
            ring.wait()
            ring.put(1 + ring.put_in % len(sets))

    def test_a_client_killed_with_graphs_out(self):
        """Its memory becomes another's while they run, or after."""
        for _ in range(harness.count(12, 3)):
            ready, written = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    self.run_until_killed(written)
                finally:
                    os._exit(1)
            os.close(written)
            self.assertEqual(os.read(ready, 1), b"x")
            os.close(ready)
            time.sleep(self.rng.uniform(0, 0.01))
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGKILL)
            got = self.buffers(12, BIG)
            for b in got:
                self.matrix(b, BIG)[:] = 7
            time.sleep(0.02)
            self.assertTrue(all((self.matrix(b, BIG) == 7).all() for b in got))
            for b in got:
                self.c.drop(b)
        buffers = self.buffers()
        self.prepare(buffers, number=9)


@unittest.skipIf(harness.QUICK or harness.FIRST_DEVICE != "cpu", "the loop runs what is short on the CPU device, in plain builds")
class OnTheLoop(Prepared):
    def nanoseconds_of_others(self):
        """On a CPU, of the daemon's threads that are not its loop."""
        of_threads = self.daemon.of_threads("schedstat")
        return sum(int(words[0]) for task, words in of_threads.items() if task != self.daemon.pid)

    def nanoseconds_of_a_run(self):
        before = self.nanoseconds_of_others()
        for _ in range(200):
            self.c.run(1)
        return (self.nanoseconds_of_others() - before) / 200

    def test_it_runs_what_is_short_and_small(self):
        """But where pages of a large file may be taken away, who touches one waits for as long as that takes: not the loop."""
        small, large = 4096, 1 << 21
        least = {}  # of several rounds: beside other work a run may have to wait for its turn
        for bytes in (small, large):
            x, y = self.c.import_new(bytes), self.c.import_new(64)
            self.c.submit(wire.copy(wire.view(x, [1]), wire.view(y, [1])), prepare=1)
            self.assertTrue(harness.eventually(lambda: self.c.run(1)["as_before"]))
            least[bytes] = min(self.nanoseconds_of_a_run() for _ in range(20))
        self.assertLess(least[small], 200)
        self.assertGreater(least[large], 500)


class Limits(Prepared):
    def tearDown(self):
        self.daemon.reload(max_prepared_per_uid="64M", max_prepared="1G")
        super().tearDown()

    def test_where_memory_is_short_all_still_run(self):
        """Room for some: the others are made anew."""
        self.daemon.reload(max_prepared_per_uid="64K")
        sets = [self.buffers() for _ in range(60)]
        for number, buffers in enumerate(sets, 1):
            self.prepare(buffers, number)
        for _ in range(2):
            for number, buffers in enumerate(sets, 1):
                self.check_run(number, buffers)
        recent = [self.check_run(len(sets), sets[-1])["as_before"] for _ in range(2)]
        self.assertEqual(recent, [1, 1])

    def test_where_there_is_room_for_messages_alone_runs_work_too(self):
        """And receipts say so."""
        self.daemon.reload(max_prepared_per_uid="8K")
        sets = [self.buffers() for _ in range(60)]
        kept = [self.prepare(buffers, number)["prepared"] for number, buffers in enumerate(sets, 1)]
        self.assertEqual(kept, sorted(kept, reverse=True))
        self.assertIn(0, kept)
        for number, buffers in enumerate(sets, 1):
            if kept[number - 1]:
                self.assertEqual(self.check_run(number, buffers)["prepared"], 1)
            else:
                self.assertEqual(self.refused(self.c.run, number)[0], "NOT_FOUND")

    def test_of_all_users(self):
        self.daemon.reload(max_prepared="32K")
        sets = [self.buffers() for _ in range(30)]
        for number, buffers in enumerate(sets, 1):
            self.prepare(buffers, number)
        for number, buffers in enumerate(sets, 1):
            self.check_run(number, buffers)

    def test_what_is_forgotten_costs_nothing(self):
        def held():
            return self.c.list_users()[os.geteuid()]["prepared_bytes"]

        before = held()
        self.prepare(self.buffers())
        self.assertGreater(held(), before)
        self.c.forget(1)
        self.assertEqual(held(), before)

    @unittest.skipIf(harness.QUICK, "8192 jobs take long")
    def test_a_session_has_8192_at_most(self):
        x = self.c.import_new(1 << 16)
        op = wire.copy(wire.view(x, [1]), wire.view(x, [1], offset=64))
        for first in range(1, 8193, 64):
            for id in [self.c.start_submit(op, prepare=number, only_prepare=1) for number in range(first, first + 64)]:
                self.c.wait(id)
        name, message = self.refused(self.c.submit, op, prepare=9000, only_prepare=1)
        self.assertEqual(name, "QUOTA")
        self.assertIn("this session has 8192 prepared jobs", message)
        self.assertEqual(self.c.submit(op, prepare=9000)["prepared"], 0)
        self.assertEqual(self.c.submit(op, prepare=8000)["prepared"], 1)  # in the place of another
        self.c.forget(1)
        self.assertEqual(self.c.submit(op, prepare=9000)["prepared"], 1)
        began = self.daemon.loop_s()
        self.c.drop(x)
        self.assertLess(self.daemon.loop_s() - began, 1)
        self.assertEqual(self.refused(self.c.run, 2)[0], "NOT_FOUND")

    def test_without_room_jobs_run_as_ever(self):
        self.daemon.reload(max_prepared_per_uid="0")
        buffers = self.buffers()
        self.assertEqual(self.prepare(buffers)["prepared"], 0)
        name, message = self.refused(self.c.submit, self.product(buffers), prepare=1, only_prepare=1)
        self.assertEqual(name, "QUOTA")
        self.assertIn("max-prepared-per-uid", message)
        self.assertEqual(self.refused(self.c.run, 1)[0], "NOT_FOUND")


@unittest.skipIf(harness.QUICK, "figures of memory are those of builds without sanitizers")
class Memory(Prepared):
    open_socket = True
    users = range(61001, 61005) if os.geteuid() == 0 else [os.geteuid()]
    settings = {"max_prepared_per_uid": "256K" if len(users) > 1 else "512K", "max_prepared": "512K"}

    def prepare_many(self, first, count):
        """No two alike, by a session of each user; more than they may keep. The sessions end, and are gone.
        Returns how many runs were graphs."""
        sessions = [self.daemon.connect_as(uid) for uid in self.users]
        buffers = [c.import_new(1 << 20) for c in sessions]
        graphs = 0
        for start in range(first, first + count, 25):
            jobs = [(c, b, number) for number in range(start, start + 25) for c, b in zip(sessions, buffers)]
            out = [(c, c.start_submit(wire.copy(wire.view(b, [1]), wire.view(b, [1], offset=4 * number)),
                                      prepare=number, device=harness.FIRST_DEVICE)) for c, b, number in jobs]
            for c, id in out:
                self.assertEqual(c.wait(id)["status"], 0)
            for _ in range(2):
                graphs += sum(c.run(number)["graph"] for c, _, number in jobs)
            for c, _, number in jobs[::2]:
                c.forget(number)
        for c in sessions:
            c.close()
        self.assertTrue(harness.eventually(lambda: self.control.stats()["mapped_bytes"] == 0))
        return graphs

    def test_memory_comes_back(self):
        """100,000 jobs in the long run. The host's memory, and a GPU's, which keeps graphs of them."""
        rounds, each = (100000 if harness.LONG else 16000) // 4000, 4000 // len(self.users)
        self.prepare_many(1, each)
        before, gpu_before = self.daemon.rss_bytes(), harness.gpu_bytes()
        for i in range(1, rounds):
            graphs = self.prepare_many(1 + i * each, each)
            self.assertGreaterEqual(graphs, 4000 * harness.ON_GPU)
        self.assertLess(self.daemon.rss_bytes() - before, 4 << 20)
        self.assertLess(harness.gpu_bytes() - gpu_before, 4 << 20)


@unittest.skipIf(harness.QUICK, "figures of memory are those of builds without sanitizers")
class TheSystem(Prepared):
    def prepare_all(self):
        c = self.daemon.connect()
        x = c.import_new(1 << 16)
        op = wire.copy(wire.view(x, [1]), wire.view(x, [1], offset=64))
        for number in range(1, 8193):
            c.wait(c.start_submit(op, prepare=number, only_prepare=1))
        return c

    def test_gets_back_what_is_forgotten(self):
        """The allocator kept all of it, where anything that stayed lay above."""
        before = self.daemon.rss_bytes()
        for _ in range(3):
            with self.prepare_all() as c:
                self.assertGreater(self.daemon.rss_bytes() - before, 8 << 20)
                self.c.import_new(4096)
                for number in range(1, 4097):
                    c.forget(number)
            self.assertTrue(harness.eventually(lambda: self.daemon.rss_bytes() - before < 4 << 20),
                            f"{self.daemon.rss_bytes() - before} bytes stay")


class Mixed(Prepared):
    def test_random_runs(self):
        """First, prepared, forgotten, dropped and resized, against NumPy."""
        jobs = {}
        for step in range(600 if harness.QUICK else 3000):
            number = int(self.rng.integers(1, 13))
            choice = self.rng.random()
            if number in jobs and choice < 0.06:
                buffers, n = jobs.pop(number)
                for b in buffers:
                    self.c.drop(b)
                self.assertEqual(self.refused(self.c.run, number)[0], "NOT_FOUND")
            elif number in jobs and choice < 0.1:
                self.c.forget(number)
                for b in jobs.pop(number)[0]:
                    self.c.drop(b)
            elif number not in jobs or choice < 0.14:
                n = int(self.rng.integers(1, 40))
                for b in jobs.pop(number, ([], 0))[0]:
                    self.c.drop(b)
                jobs[number] = (self.buffers(n=n), n)
                self.prepare(jobs[number][0], number, n)
            else:
                self.check_run(number, *jobs[number])


if __name__ == "__main__":
    harness.main()
