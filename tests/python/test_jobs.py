"""Jobs of several ops, event loops, threads, and restarts of the daemon."""
import asyncio
import contextlib
import errno
import gc
import itertools
import os
import resource
import signal
import sys
import threading
import time
import types
import unittest
import unittest.mock

import numpy as np

import kops
from kops import _loop, _memory
from case import PythonTest, eventually, harness

PROMPT_S = 15  # on a busy machine; what waits does so for 30 s
LONG = 1500  # a product of this size takes a while on every machine


class Jobs(PythonTest):
    def test_ops_run_in_order_on_ordinary_and_shared_arrays(self):
        a, b, out = self.shared((20, 30)), self.numbers((30, 10)), np.full((20, 10), np.nan, np.float32)
        expected = np.exp(a.astype(np.float64) @ b)
        expected /= expected.sum(-1, keepdims=True)
        with self.kops.job(timed=True) as j:
            t = j.matmul(a, b)
            self.assertIs(j.softmax(t, out=out), out)
        self.near(out, expected, 10)
        self.assertEqual([op.op for op in j.receipt.ops], ["gemm", "softmax"])
        self.assertEqual(j.receipt.copied_bytes, b.nbytes + out.nbytes)

    def test_again_with_other_contents(self):
        a = self.shared((16, 16))
        j = self.kops.job()
        c = j.matmul(a, a)
        for i in range(6):
            a[:] = self.numbers((16, 16))
            j.run()
            self.near(c, a.astype(np.float64) @ a, 16)
        self.assertTrue(j.receipt.prepared)

    def test_a_prepared_job_was_checked_and_has_not_run(self):
        a, c = self.shared((16, 16)), self.poisoned((16, 16))
        j = self.kops.job()
        j.matmul(a, a, out=c)
        j.prepare()
        self.assertTrue(np.isnan(c).all() and not j.is_done)
        self.fails(kops.StateError, "", j.add, a, a)
        j.run()
        self.near(c, a.astype(np.float64) @ a, 16)
        self.assertTrue(j.receipt.prepared)
        wrong = self.kops.job()
        wrong.matmul(a, a, kernel="none-such")
        self.fails(kops.Error, "none-such", wrong.prepare)
        self.kops.job().prepare()  # of no op

    def test_a_job_keeps_its_device_arrays(self):
        a = self.numbers((8, 8))
        published = self.kops.publish(a, "a", device="cpu")
        with kops.connect(self.daemon.socket) as other:
            out, j = other.empty((8, 8)), other.job()
            j.matmul(j.matmul(other.attach("a"), other.device_array((8, 8)).upload(a)), other.attach("a"), out=out)
            gc.collect()
            for _ in range(3):
                out.fill(np.nan)
                j.run()
                self.near(out, np.linalg.matrix_power(a.astype(np.float64), 3), 64)
            del out, j
        del published

    def test_nothing_runs_after_an_exception_in_the_block(self):
        a, c = self.shared((4, 4)), self.poisoned((4, 4))
        with self.assertRaises(ZeroDivisionError), self.kops.job() as j:
            j.matmul(a, a, out=c)
            1 / 0
        self.assertTrue(np.isnan(c).all())
        self.assertIsNone(j.receipt)

    def test_arrays_without_elements(self):
        job = self.kops.job()
        c = job.matmul(self.numbers((0, 3)), self.shared((3, 2)))
        for action in (job.run, lambda: asyncio.run(_await(job)), job.submit, job.wait):
            action()
            self.assertTrue(job.is_done)
        self.assertEqual((c.shape, job.receipt), ((0, 2), None))

    def test_options_that_kops_h_cannot_have(self):
        self.fails(kops.ArgumentError, "queue is -1", self.kops.job, queue=-1)
        self.fails(kops.ArgumentError, "from 0 to 4294967295", self.kops.job, queue=1 << 32)
        self.fails(kops.ArgumentError, "deadline", self.kops.job, deadline=-1)
        for timeout in -1, 5e6, float("inf"), float("nan"):
            self.fails(kops.ArgumentError, "timeout", kops.connect, self.daemon.socket, timeout=timeout)
        self.fails(kops.ArgumentError, "spin_us is -1", kops.connect, self.daemon.socket, spin_us=-1)
        self.fails(TypeError, "device is 0; it must be a string", self.kops.job, device=0)
        self.fails(TypeError, "device is 0; it must be a string", self.kops.device_array, 3, device=0)
        self.fails(TypeError, "name is 0; it must be a string", kops.connect, self.daemon.socket, name=0)
        self.kops.job(queue=(1 << 32) - 1, deadline=60)
        for text, words in ("a\0b", "has a NUL"), ("x" * 5000, "has 5000 bytes: it may have 64"), ("\u00e9" * 33, "66 bytes"):
            self.fails(kops.ArgumentError, words, kops.connect, self.daemon.socket, name=text)
            self.fails(kops.ArgumentError, words, self.kops.job, device=text)
            self.fails(kops.ArgumentError, words, self.kops.device_array, 3, device=text)
            self.fails(kops.ArgumentError, words, self.kops.softmax, self.shared((3,)), kernel=text)
        self.fails(kops.ArgumentError, "has a NUL", kops.connect, self.daemon.socket + "\0")
        kops.connect(self.daemon.socket, name="x" * 64).close()

    def test_submit_wait_cancel(self):
        a = self.shared((LONG, LONG), np.float64)
        first, second = self.kops.job(), self.kops.job()
        product = first.matmul(a, a)
        for _ in range(3):
            first.matmul(a, a, out=product)
        second.matmul(a, a)
        first.submit()
        self.fails(kops.StateError, "already running", first.submit)
        self.fails(kops.StateError, "after submit()", first.add, a, a)
        second.submit()
        second.cancel()
        self.fails(kops.TimedOutError, "still running", first.wait, 0.001)
        self.assertFalse(first.is_done)
        self.assertIsNone(first.receipt)
        first.wait()
        self.assertTrue(first.is_done)
        self.assertIsNotNone(first.receipt)
        self.fails(kops.CancelledError, "", second.wait)
        self.fails(kops.StateError, "not submitted", self.kops.job().wait)

    def test_close_ends_the_jobs_that_are_out(self):
        a = self.shared((LONG, LONG))
        j = self.kops.job()
        c = j.matmul(a, a)
        j.submit()
        self.kops.close()
        self.fails(kops.StateError, "closed", j.wait)
        del c

    def test_deadline(self):
        a = self.shared((LONG, LONG), np.float64)
        slow, late = self.kops.job(), self.kops.job(deadline=1e-4)
        slow.matmul(a, a)
        late.matmul(a, a)
        slow.submit()
        late.submit()
        self.fails(kops.DeadlineError, "", late.wait)
        slow.wait()


class Figures(PythonTest):
    def test_users_sessions_and_the_trace(self):
        x = self.shared((8, 8))
        for _ in range(3):
            self.kops.add(x, x)
        session = next(s for s in self.kops.sessions() if s.client == self.id().rsplit(".", 1)[1])
        self.assertEqual((session.pid, session.usage.jobs_done, session.oldest), (os.getpid(), 3, None))
        user = next(u for u in self.kops.users() if u.uid == os.geteuid())
        self.assertGreaterEqual(user.usage.jobs_done, 3)
        self.assertGreater(user.mapped_bytes, 0)
        jobs = [j for j in self.kops.trace() if j.session == session.session]
        self.assertEqual([(j.op, j.dtype, j.shape, j.status, j.n_ops, j.bytes) for j in jobs],
                         [("add", "f32", (8, 8), 0, 1, 3 * 256)] * 3)
        self.assertLess(abs(time.monotonic_ns() - jobs[0].ended_ns), 60e9)
        self.assertEqual([j.number for j in self.kops.trace(2)], [j.number for j in jobs[:2]])
        self.assertEqual([j.number for j in self.kops.trace(after=jobs[1].number)], [jobs[0].number])


class EventLoops(PythonTest):
    def test_many_jobs_at_once(self):
        async def main():
            pairs = []
            for _ in range(50):
                a = self.shared((12, 12))
                j = self.kops.job()
                pairs.append((a, j.matmul(a, a), j))
            await asyncio.gather(*(j for _, _, j in pairs))
            for a, c, _ in pairs:
                self.near(c, a.astype(np.float64) @ a, 12)
            async with self.kops.job() as j:
                last = j.add(a, a)
            self.assertTrue((last == a + a).all())
        asyncio.run(main())

    def test_the_loop_runs_on_meanwhile(self):
        async def main():
            a = self.shared((LONG, LONG), np.float64)
            j = self.kops.job()
            j.matmul(a, a)
            turns, longest, waiting = 0, 0.0, asyncio.ensure_future(j.__await__ and _await(j))
            while not waiting.done():
                begin = time.monotonic()
                await asyncio.sleep(0.001)
                longest, turns = max(longest, time.monotonic() - begin), turns + 1
            await waiting
            self.assertGreater(turns, 3)
        asyncio.run(main())

    def test_cancelling_the_wait_cancels_the_job(self):
        async def main():
            a = self.shared((LONG, LONG), np.float64)
            before, after = self.kops.job(), self.kops.job()
            before.matmul(a, a)
            after.matmul(a, a)
            before.submit()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(_await(after), 0.005)
            await before
            with self.assertRaises(kops.CancelledError):
                after.wait()
        asyncio.run(main())

    def test_errors_and_two_loops(self):
        async def fails():
            a = self.shared((4, 4))
            j = self.kops.job(deadline=1e-6)
            slow = self.kops.job()
            big = self.shared((LONG, LONG))
            slow.matmul(big, big)
            slow.submit()
            j.matmul(a, a)
            with self.assertRaises(kops.DeadlineError):
                await j
            await slow
        asyncio.run(fails())
        asyncio.run(fails())  # another loop, one after the other

    def test_the_loop_takes_turns_with_threads(self):
        process, inside = _loop.lib.kops_process, []

        def note(handle):
            inside.append(self.kops._session.is_inside())
            return process(handle)

        async def main():
            async with self.kops.job() as j:
                j.add(self.shared((4,)), 1.0)

        with unittest.mock.patch.object(_loop.lib, "kops_process", note):
            asyncio.run(main())
        self.assertTrue(inside and all(inside), inside)

    def test_nothing_waits_while_kopsd_is_stuck(self):
        slowest = 0.0

        def timed(function, *args, **kwargs):
            nonlocal slowest
            begin = time.monotonic()
            result = function(*args, **kwargs)
            slowest = max(slowest, time.monotonic() - begin)
            return result

        async def main():
            self.daemon.signal(signal.SIGSTOP)
            try:
                client = timed(kops.connect, self.daemon.socket)
                a = timed(client.zeros, (100, 100))
                a[:] = self.numbers((100, 100))
                d = timed(client.device_array, (100, 100))
                j = timed(client.job)
                timed(j.copy, a, out=d)
                c = timed(j.matmul, d, a.T, out=timed(client.empty, (100, 100)))
                timed(j.submit)
                waiting = asyncio.ensure_future(_await(j))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                self.assertFalse(waiting.done())
            finally:
                self.daemon.signal(signal.SIGCONT)
            await waiting
            self.near(c, a.astype(np.float64) @ a.T, 100)
            client.close()

        asyncio.run(main())
        self.assertLess(slowest, PROMPT_S)


class Limits(PythonTest):
    """Of this process, in a coroutine, where it makes the memory itself."""

    def makes(self, shape):
        async def main():
            return self.kops.zeros(shape)
        return asyncio.run(main())

    @contextlib.contextmanager
    def limit(self, which, soft):
        before = resource.getrlimit(which)
        resource.setrlimit(which, (soft, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(which, before)

    def test_errors_are_those_of_kops(self):
        for error, kind, words in [(errno.EMFILE, kops.Error, "ulimit -n"), (errno.ENFILE, kops.Error, "no descriptor"),
                                   (errno.ENOMEM, kops.OutOfMemoryError, "no memory"), (errno.EPERM, kops.Error, "not permitted")]:
            with unittest.mock.patch.object(os, "memfd_create", side_effect=OSError(error, os.strerror(error))):
                self.fails(kind, words, self.makes, (1 << 20,))
        with self.limit(resource.RLIMIT_FSIZE, 1 << 20):
            self.fails(kops.OutOfMemoryError, "ulimit -f", self.makes, (1 << 20,))
            self.assertEqual(self.makes((1 << 17,)).sum(), 0)
        self.assertEqual(self.makes((1 << 20,)).sum(), 0)

    def test_no_descriptor_is_left(self):
        async def main():
            with self.limit(resource.RLIMIT_NOFILE, max(map(int, os.listdir("/proc/self/fd"))) + 1):
                all_of_them = []
                with contextlib.suppress(OSError):
                    while True:
                        all_of_them.append(os.dup(0))
                try:
                    self.fails(kops.Error, "ulimit -n", self.kops.zeros, (1 << 20,))
                finally:
                    for fd in all_of_them:
                        os.close(fd)
        asyncio.run(main())


class Refusals(PythonTest):
    settings = {"max_mapped_per_uid": "4M"}

    def test_memory_that_kopsd_cannot_have(self):
        async def main():
            with self.kops.job() as small:
                before = small.add(self.shared((4,)), 1.0)
            big = self.kops.zeros((1 << 20, 2))
            j = self.kops.job()
            j.add(big, big, out=big)
            with self.assertRaises(kops.QuotaError) as caught:
                await j
            self.assertIn("could not be allocated", str(caught.exception))
            self.assertEqual(big.sum() + big[0, 0], 0)  # it is memory still
            del big
            async with self.kops.job() as j:  # and nobody gets it again
                again = j.add(before, before)
            self.assertTrue((again == 2 * before).all())

        asyncio.run(main())

    def test_no_later_array_gets_a_refused_slab(self):
        async def main():
            first = self.kops.zeros((3 << 18,))
            second = self.kops.zeros((3 << 18,))
            j = self.kops.job()
            j.copy(first, out=second)
            with self.assertRaises(kops.QuotaError):
                await j
            del j, first, second
            third, fourth = self.shared((16,)), self.shared((16,))
            async with self.kops.job() as j:
                c = j.add(third, fourth)
            self.assertTrue((c == third + fourth).all())

        asyncio.run(main())


async def _await(job):
    await job


class Threads(PythonTest):
    def test_one_client_or_many(self):
        wrong = []

        def work(client, seed):
            rng = np.random.default_rng(seed)
            for _ in range(harness.count(100, 10)):
                a = client.asarray(rng.uniform(-1, 1, (16, 16)).astype(np.float32))
                c = client.matmul(a, a.T)
                if np.abs(c - a.astype(np.float64) @ a.T).max() > 1e-5:
                    wrong.append(seed)

        clients = [kops.connect(self.daemon.socket) for _ in range(4)]
        for each in [self.kops] * 8, clients:
            threads = [threading.Thread(target=work, args=(c, i)) for i, c in enumerate(each)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        for c in clients:
            c.close()
        self.assertEqual(wrong, [])


class Stop(Exception):
    pass


class Interruptions(PythonTest):
    """By exceptions of signal handlers, as that of Ctrl-C."""

    def test_ctrl_c_while_a_job_runs_that_soon_ends(self):
        a = self.shared((LONG, LONG), np.float64)
        job = self.kops.job()
        c = job.matmul(a, a)
        job.submit()
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            job.wait()
            time.sleep(30)
        job.wait()
        self.near(c, a @ a, 100 * LONG)

    def test_a_job_that_was_just_sent(self):
        job = self.kops.job()
        y = job.add(self.shared((4,)), 1.0, out=self.poisoned((4,)))
        with self.interrupted_after("kops_submit"):
            job.submit()
        job.wait(30)
        self.assertTrue(np.isfinite(y).all())

    def test_a_buffer_that_was_just_made(self):
        for make in self.kops.zeros, self.kops.device_array:
            for call in "kops_alloc_start", "kops_buffer_wait":
                with self.interrupted_after(call):
                    make((1 << 20,))
                self.assertTrue(eventually(lambda: self.kops.info().buffers == 0, 10), (make, call))

    @contextlib.contextmanager
    def interrupted_after(self, name):
        """A call of libkops, which returns while a signal waits."""
        call = getattr(_loop.lib, name)

        def call_and_stop(*args):
            call(*args)
            raise Stop

        with unittest.mock.patch.object(_loop.lib, name, call_and_stop), self.assertRaises(Stop):
            yield

    def interrupted_at(self, n, action):
        """Raises Stop at the nth place where action() calls something or returns. False: it has no so many."""
        count, here = itertools.count(), sys._getframe().f_code

        def note(frame, *_):
            if frame.f_code is not here and next(count) == n:
                raise Stop

        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # those that finalizers swallow
        sys.setprofile(note)
        try:
            action()
        except Stop:
            return True
        finally:
            sys.setprofile(None)
            sys.unraisablehook = hook
        return False

    def test_what_is_due_is_done_whatever_interrupts_it(self):
        client = kops.connect(self.daemon.socket, cache_bytes=0)
        x, y = client.zeros((4,)), client.zeros((4,))
        session, buffers = client._session, client.info().buffers
        live = session.pool.live
        for n in itertools.count():
            job, gone = client.job(), [client.job(), client.zeros((300, 300)), client.device_array((8,))]
            job.add(x, 1.0, out=y)
            job.submit()
            with session.lock:
                session.wait(job._job.pointer, None)
                gone.clear()
                went_on = self.interrupted_at(n, session._settle)
            job.wait(0)
            self.assertTrue((y == x + 1).all())
            self.assertEqual((session.pool.live, session.n_resident, len(session.due)), (live + 1, 0, 0), n)  # job's 1.0
            del job
            if not went_on:
                break
        self.assertGreater(n, 20)
        self.assertTrue(eventually(lambda: client.info().buffers == buffers))
        del x, y
        client.close()
        self.assertIsNone(session.handle)

    def test_memory_of_an_array_that_did_not_come_to_be(self):
        session = self.kops._session
        for n in itertools.count():
            if not self.interrupted_at(n, lambda: self.kops.empty((1 << 18,))):
                break
            self.assertEqual(session.pool.live, 0, n)
        self.assertGreater(n, 20)

    def test_a_signal_put_off_while_others_arrive(self):
        """Their exceptions must not leave a thread behind that waits for ever for a lock of threading."""
        seen, threads = [], threading.active_count()
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        patient = _memory.Patient(signal.getsignal(signal.SIGUSR1))
        in_a_block = types.SimpleNamespace(f_code=_memory.Memory.__enter__.__code__)
        for n in itertools.count():
            if not self.interrupted_at(n, lambda: patient(signal.SIGUSR1, in_a_block)):
                break
        self.assertTrue(eventually(lambda: seen))
        self.assertTrue(eventually(lambda: threading.active_count() == threads), threading.enumerate())


class GivenUp(PythonTest):
    """Jobs that nobody waits for any more never write to arrays that the caller has back."""

    def setUp(self):
        super().setUp()
        self.a = self.shared((LONG, LONG), np.float64)
        self.out = self.poisoned((LONG, LONG), np.float64)
        self.idle = kops.connect(self.daemon.socket)

    def tearDown(self):
        self.idle.close()
        del self.a, self.out
        super().tearDown()

    def impatient(self, timeout=0.001):
        """self.kops, with another timeout."""
        session = self.kops._session
        session.timeout, session.first_wait_ms = timeout, max(1, round(timeout * 1000))
        return self.kops

    def assert_stays(self, out):
        """What the caller writes now, until kopsd has nothing to do any more."""
        out.fill(7)
        self.wait_for_idleness()
        self.assertTrue((out == 7).all())
        x = self.numbers((20, 20), out.dtype)
        self.impatient(30)
        self.near(self.kops.matmul(x, x, out=out[:20, :20]), x.astype(np.float64) @ x, 20)
        self.assertTrue((out[20:] == 7).all())

    def wait_for_idleness(self):
        self.assertTrue(eventually(lambda: not any(d.queued or d.running for d in self.idle.info().devices), 60))

    def every_way(self, out):
        """Calls with self.out or its like as the output that are too late."""
        def run(with_block):
            job = self.kops.job()
            if with_block:
                with job:
                    job.matmul(self.a, self.a, out=out)
            job.matmul(self.a, self.a, out=out)
            job.run()

        return [lambda: self.kops.matmul(self.a, self.a, out=out), lambda: run(False), lambda: run(True),
                lambda: self.kops.gemm(1, self.a, self.a, 1, out)]

    def test_after_a_timeout(self):
        for call in self.every_way(self.out):
            self.out.fill(0)
            self.impatient()
            with unittest.mock.patch.object(kops._session, "LET_GO_S", 60.0):
                e = self.fails(kops.TimedOutError, "client's timeout of 0.001 s, and was cancelled", call)
            self.assertIn("longer timeout", str(e))
            self.assertTrue(self.kops.owns(self.out))  # kopsd stopped the job
            self.assert_stays(self.out)

    @contextlib.contextmanager
    def unstoppable(self):
        """kopsd does not answer in this block. After it, it computes all that it was sent."""
        self.daemon.signal(signal.SIGSTOP)
        try:
            with unittest.mock.patch.object(_loop.lib, "kops_cancel", lambda _: 0), \
                    unittest.mock.patch.multiple(kops._session, LET_GO_S=0.0), \
                    unittest.mock.patch.multiple(kops._job, LET_GO_S=0.0):
                yield
        finally:
            self.daemon.signal(signal.SIGCONT)

    def test_after_a_timeout_of_a_job_that_cannot_be_stopped(self):
        for which in range(4):
            out = self.kops.zeros((LONG, LONG), np.float64)
            row = out[3]
            row[:] = 5
            self.impatient()
            with self.unstoppable():
                self.fails(kops.TimedOutError, "was cancelled", self.every_way(out)[which])
            self.assertFalse(self.kops.owns(out))
            self.assert_stays(out)
            del row

    def test_a_small_result_beside_others(self):
        """Of small arrays many lie in one buffer."""
        blocks = [self.kops.asarray(np.full((8, 8), i, np.float64)) for i in range(20)]
        self.impatient()
        with self.unstoppable():
            self.fails(kops.TimedOutError, "", self.kops.matmul, blocks[0], blocks[1], out=blocks[2])
        blocks[2].fill(2)
        self.assertFalse(self.kops.owns(blocks[7]))
        self.impatient(30)
        self.wait_for_idleness()
        self.assertTrue(all((x == i).all() for i, x in enumerate(blocks)))
        self.near(self.kops.matmul(blocks[3], blocks[4]), np.full((8, 8), 96.0), 8)
        self.assertTrue(self.kops.owns(self.kops.zeros((8, 8), np.float64)))
        used = self.kops._session.pool.live
        del blocks
        gc.collect()
        self.assertLess(self.kops._session.pool.live, used - 15)

    def test_while_kopsd_is_stuck(self):
        self.kops.matmul(self.a[:8, :8], self.a[:8, :8], out=self.out[:8, :8])
        self.impatient(0.05)
        self.daemon.signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            self.fails(kops.TimedOutError, "", self.kops.matmul, self.a, self.a, out=self.out)
            took = time.monotonic() - begin
        finally:
            self.daemon.signal(signal.SIGCONT)
        self.assertLess(took, 25)  # the patience of others is 30 s
        self.assertFalse(self.kops.owns(self.out))
        self.assert_stays(self.out)

    def test_ctrl_c(self):
        for call in self.every_way(self.out)[:2]:
            self.out.fill(0)
            self.daemon.signal(signal.SIGSTOP)
            try:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                with self.assertRaises(KeyboardInterrupt):
                    call()
            finally:
                self.daemon.signal(signal.SIGCONT)
            self.assert_stays(self.out)

    def test_cancelling_the_wait(self):
        job = self.kops.job()
        job.matmul(self.a, self.a, out=self.out)
        with unittest.mock.patch.object(kops._job, "LET_GO_S", 60.0):
            self.cancel_the_wait(job)
        self.assertTrue(job.is_done)
        self.assert_stays(self.out)
        self.fails(kops.CancelledError, "", job.wait)

    def cancel_the_wait(self, job):
        async def main():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(_await(job), 0.001)
        asyncio.run(main())

    def test_cancelling_the_wait_for_a_job_that_cannot_be_stopped(self):
        ordinary = np.zeros((LONG, LONG))
        job = self.kops.job()
        job.matmul(self.a, self.a, out=self.out)
        job.copy(self.out, out=ordinary)
        with self.unstoppable():
            self.cancel_the_wait(job)
        self.assertFalse(self.kops.owns(self.out))
        self.assert_stays(self.out)
        self.fails(kops.CancelledError, "without its results", job.wait)
        self.fails(kops.StateError, "make another job", job.run)
        self.assertFalse(ordinary.any())

    def test_another_job_that_writes_to_the_same_buffer(self):
        """Its results would not be seen, which it says. What was done before stays."""
        x = self.shared((8, 8))
        done, other, given_up = (self.kops.job() for _ in range(3))
        before, after = done.add(x, 1.0), other.add(x, 1.0)
        given_up.add(x, 1.0, out=x)
        done.submit()
        self.assertTrue(eventually(lambda: done.is_done, 60))
        with self.unstoppable():
            other.submit()
            given_up.submit()
            given_up._give_up()
        done.wait()
        self.fails(kops.CancelledError, "without its results", other.wait)
        self.fails(kops.CancelledError, "without its results", given_up.wait)
        self.assertTrue((before == x + 1).all())
        del after

    def test_closing_the_client(self):
        job = self.kops.job()
        job.matmul(self.a, self.a, out=self.out)
        job.submit()
        self.kops.close()
        self.out.fill(7)
        self.wait_for_idleness()
        self.assertTrue((self.out == 7).all())


class Restarts(PythonTest):
    leaks_checked = False  # another process has other descriptors

    def interrupt(self, call, times):
        """As Ctrl-C does, anywhere in the call."""
        def stop(*_):
            nonlocal armed
            if armed:
                armed = False
                raise Stop

        def repeat():
            nonlocal armed
            armed = True
            while armed:
                call()

        armed, hook, sys.unraisablehook = False, sys.unraisablehook, lambda _: None  # those that finalizers swallow
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 0.7e-3)
        try:
            for _ in range(times):
                try:
                    repeat()  # in Python 3.13 a loop's end is not in the block around it
                except Stop:
                    pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook

    def test_an_exception_of_a_signal_handler_leaves_the_client_usable(self):
        a, b, c = self.shared((8, 8)), self.shared((8, 8)), self.poisoned((8, 8))

        def run_job():
            with self.kops.job() as job:
                job.add(a, b, out=c)

        def add_ordinary():
            with self.kops.memory():
                return np.ones((8, 8)) + c

        for call, times in [(lambda: self.kops.matmul(a, b, out=c), 700), (lambda: self.kops.empty((8, 8)), 700),
                            (run_job, 700), (add_ordinary, 100)]:
            self.interrupt(call, times)
            result = []
            thread = threading.Thread(target=lambda: result.append(self.kops.matmul(a, b)), daemon=True)
            thread.start()
            thread.join(30)
            self.near(result[0], a.astype(np.float64) @ b, 8)

    def test_calls_go_on_after_the_daemon_died(self):
        a = self.shared((10, 10))
        d = self.kops.device_array((10, 10)).upload(a)
        self.kops.matmul(a, a)
        self.daemon.process.kill()
        self.daemon.wait()
        self.daemon.start()
        self.near(self.kops.matmul(a, a), a.astype(np.float64) @ a, 10)
        self.fails(kops.LostError, "", d.download)
        d.upload(a)
        self.assertTrue((d.download() == a).all())
        self.control.close()
        type(self).control = self.daemon.connect(name="control")

    def test_without_a_daemon(self):
        e = self.fails(kops.ConnectError, "/no/such/socket", kops.connect, "/no/such/socket", timeout=0.1)
        self.assertIsInstance(e, ConnectionError)
        self.assertEqual(e.name, "CONNECT")


if __name__ == "__main__":
    unittest.main()
