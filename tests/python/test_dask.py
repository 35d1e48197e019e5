"""kops.dask on a cluster of processes: a scheduler and workers, each with a kopsd of its own, some of which die."""
import concurrent.futures
import gc
import os
import socket
import subprocess
import sys
import time
import unittest
import unittest.mock

import numpy as np

from case import ACTIVATIONS, LONG, eventually, harness

try:
    import dask
    import dask.array as da
    import distributed
except ImportError:
    print("skipped: no dask.distributed")
    sys.exit(77)

import kops
import kops.dask

WORKERS = 3
QUOTA = 24 << 20  # a quarter for what chunks hold, the rest for operands of one op: two of 8 MiB in the long run
CHUNK = 250
SIDE = 5000 if LONG else 1500
# What a worker may hold before it spills to disk. Its process is larger than that from the start, so no other limit is set.
MEMORY = {"MEMORY__TARGET": 0.5, "MEMORY__SPILL": False, "MEMORY__PAUSE": False, "MEMORY__TERMINATE": False}
MEMORY_LIMIT = 32 << 20
IDLE = "60 s"  # should this test be killed, its programs end by themselves


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def module(name):
    """Dask's programs, as modules: a test need not know where they are installed."""
    return [sys.executable, "-m", f"distributed.cli.dask_{name}"]


class Cluster:
    """A scheduler and its workers. Worker i, of this name, has daemons[i]."""

    def __init__(self, folder):
        self.daemons = [harness.Daemon(max_mapped_per_uid=QUOTA) for _ in range(WORKERS)]
        self.programs = []
        self.folder = folder
        self.env = {**os.environ, "DASK_KOPS__MEMORY": str(QUOTA // 4), "OPENBLAS_NUM_THREADS": "1",
                    **{f"DASK_DISTRIBUTED__WORKER__{k}": str(v) for k, v in MEMORY.items()}}

    def start(self):
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.run(*module("scheduler"), "--host", self.address, "--no-dashboard", "--idle-timeout", IDLE)
        for i, daemon in enumerate(self.daemons):
            daemon.start()
            self.run(*module("worker"), self.address, "--name", str(i), "--no-nanny", "--nthreads", "1", "--no-dashboard",
                     "--memory-limit", str(MEMORY_LIMIT), "--local-directory", self.folder,
                     KOPS_SOCKET=daemon.socket)
        self.client = distributed.Client(self.address, timeout=600)
        self.client.wait_for_workers(WORKERS, timeout=600)
        self.client.run(start_over, 30, 5)

    def run(self, *command, **env):
        with open(os.path.join(self.folder, f"log{len(self.programs)}"), "wb") as log:
            self.programs.append(subprocess.Popen(command, env={**self.env, **env}, stdout=log, stderr=log))

    def worker(self, i):
        return self.programs[1 + i]

    def addresses(self):
        """{address: number of the worker}"""
        return self.client.run(number)

    def calls(self):
        """{number of the worker: its calls}"""
        return dict(self.client.run(lambda dask_worker: (number(dask_worker), kops.dask.calls())).values())

    def warnings(self):
        """Why chunks were not computed by kopsd."""
        lines = []
        for i in range(len(self.programs)):
            with open(os.path.join(self.folder, f"log{i}"), encoding="utf-8") as f:
                lines += [line for line in f if "NumPy computes" in line]
        return "".join(lines)

    def end(self):
        if hasattr(self, "client"):
            self.client.close()
        for program in self.programs:
            program.kill()
            program.wait()
        for daemon in self.daemons:
            daemon.remove()


def number(dask_worker):
    return int(dask_worker.name)


def spilled(dask_worker):
    return dask_worker.data.spilled_total.disk


def start_over(connect_s, away_s):
    """In a worker: another client, which waits so long for kopsd; all counts are 0."""
    kops._chunks.CONNECT_S, kops._chunks.AWAY_S = connect_s, away_s
    kops._chunks._forget_here()


def numbers(seed, dtype, side=SIDE, chunk=CHUNK):
    return da.random.RandomState(seed).uniform(-1, 1, (side, side), chunks=chunk).astype(dtype)


class Workers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = harness.tempfile.TemporaryDirectory(prefix="kops-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = Cluster(folder.name)
        cls.addClassCleanup(cls.cluster.end)
        cls.cluster.start()

    def values(self, *arrays):
        return self.cluster.client.gather(self.cluster.client.compute(list(arrays)))

    def near(self, c, a, b, dtype):
        error = abs(c.astype(float) - a.astype(float) @ b.astype(float)).max()
        self.assertLess(error, SIDE * 4 * np.finfo(dtype).eps)

    def test_1_a_product_larger_than_a_quota(self):
        """And larger than what the workers hold in memory: they spill. Yet kopsd computes every chunk."""
        a, b = self.cluster.client.persist([numbers(1, "d"), numbers(2, "d")])
        c = self.cluster.client.persist(kops.dask.matmul(a, b))
        distributed.wait(c)
        self.assertGreater(a.nbytes + b.nbytes + c.nbytes, 2 * QUOTA)
        self.assertGreater(sum(self.cluster.client.run(spilled).values()), 0)
        calls = self.cluster.calls()
        self.assertEqual(sum(n["kopsd"] for n in calls.values()), (SIDE // CHUNK) ** 3)
        self.assertTrue(all(n["kopsd"] > 0 and n["numpy"] == 0 for n in calls.values()), (calls, self.cluster.warnings()))
        self.near(*self.values(c, a, b), "d")

    def test_2_softmax_and_transpose(self):
        x = numbers(3, "f")[:600]
        y, t, none, before = self.values(kops.dask.softmax(x, scale=3), kops.dask.transpose(x),
                                         kops.dask.matmul(x[:0], x[:50].T), x)
        self.assertEqual(none.shape, (0, 50))
        e = np.exp(3 * before.astype(float))
        self.assertLess(abs(y - e / e.sum(1, keepdims=True)).max(), 1e-6)
        self.assertTrue(np.array_equal(t, before.T))
        self.assertEqual(sum(n["numpy"] for n in self.cluster.calls().values()), 0, self.cluster.warnings())

    def test_3_deaths(self):
        """Of worker 2, and of worker 1's kopsd, in the middle of a product; then that kopsd is back."""
        cluster = self.cluster
        cluster.client.run(start_over, 2, 1)
        a, b = (numbers(seed, "f", side=SIDE // 3 * 2, chunk=SIDE // 15 + 1) for seed in (4, 5))
        c = cluster.client.persist(kops.dask.matmul(a, b))
        self.assertTrue(eventually(lambda: self.chunks_by_kopsd() > 30, 60, 0.05), cluster.calls())
        cluster.worker(2).kill()
        cluster.daemons[1].process.kill()
        cluster.daemons[1].wait()
        distributed.wait(c)
        calls = cluster.calls()
        self.assertEqual(set(calls), {0, 1})
        self.assertGreater(calls[1]["numpy"], 0)
        self.near(*self.values(c, a, b), "f")
        os.truncate(cluster.daemons[1].log_path, 0)
        cluster.daemons[1].start()
        self.assertTrue(eventually(self.worker_1_uses_kopsd, 60, 0.5), cluster.calls())

    def chunks_by_kopsd(self):
        return sum(n["kopsd"] for n in self.cluster.calls().values())

    def worker_1_uses_kopsd(self):
        address = next(address for address, i in self.cluster.addresses().items() if i == 1)
        x = da.ones((40, 40), chunks=40, dtype="f")
        before = self.cluster.calls()[1]["kopsd"]
        product = self.cluster.client.compute(kops.dask.matmul(x, x), workers=[address]).result()
        self.assertTrue((product == 40).all())
        return self.cluster.calls()[1]["kopsd"] > before


def filtered(x, axis):
    """Without every other element along the axis, as chunks of sizes that Dask does not know."""
    return x[(slice(None),) * axis + (da.arange(x.shape[axis], chunks=x.chunks[axis]) % 2 == 0,)]


class Graphs(unittest.TestCase):
    """What is wrong is said when the graph is made, not in a worker."""

    def test_refusals(self):
        x = da.ones((3, 4), chunks=2, dtype="f")
        for kind, words, call in [
                (kops.ShapeError, "the last axis of a (4)", lambda: kops.dask.matmul(x, x)),
                (kops.ShapeError, "takes 2 to 4 axes", lambda: kops.dask.matmul(x[0], x)),
                (kops.ShapeError, "takes 2 to 4 axes", lambda: kops.dask.transpose(x[None, None, None])),
                (kops.ShapeError, "no axis 2", lambda: kops.dask.softmax(x, 2)),
                (kops.DtypeError, "a is float32, b is float64", lambda: kops.dask.matmul(x, x.T.astype("d"))),
                (kops.DtypeError, "not with int64", lambda: kops.dask.matmul(x.astype(int), x.T)),
                (kops.ShapeError, "compute_chunk_sizes()", lambda: kops.dask.matmul(
                    filtered(da.ones((3, 6), chunks=(3, 2), dtype="f"), 1), filtered(da.ones((4, 3), chunks=2, dtype="f"), 0))),
                (kops.ShapeError, "compute_chunk_sizes()", lambda: kops.dask.matmul(
                    filtered(da.ones((3, 6), chunks=6, dtype="f"), 1), filtered(da.ones((4, 3), chunks=2, dtype="f"), 0))),
                (kops.ArgumentError, "x.filled(value)", lambda: kops.dask.softmax(da.ma.masked_equal(x, 1))),
                (kops.ArgumentError, "x.filled(value)", lambda: kops.dask.transpose(np.ma.masked_equal(np.eye(3), 0))),
                (kops.ArgumentError, "no precision 'best'", lambda: kops.dask.matmul(x, x.T, precision="best")),
                (kops.ArgumentError, "no activation 'swish'", lambda: kops.dask.matmul(x, x.T, activation="swish")),
                (kops.DtypeError, "a is float32, b is float32, bias is float64", lambda: kops.dask.matmul(
                    x, x.T, bias=np.ones(3))),
                (kops.ShapeError, "takes 1 to 4 axes", lambda: kops.dask.matmul(x, x.T, bias=np.float32(1))),
                (kops.ShapeError, "bias has shape (4,), which cannot be broadcast to the product of a, (3, 4), and b, (4, 3)",
                 lambda: kops.dask.matmul(x, x.T, bias=np.ones(4, "f"))),
                (kops.ShapeError, "bias has shape (3,)", lambda: kops.dask.matmul(x, x.T[:, :1], bias=np.ones(3, "f"))),
                (kops.ShapeError, "bias has shape (1, 3, 3)", lambda: kops.dask.matmul(x, x.T, bias=np.ones((1, 3, 3), "f"))),
                (kops.ArgumentError, "x.filled(value)", lambda: kops.dask.matmul(x, x.T, bias=da.ma.masked_equal(x[:, :1], 1)))]:
            with self.assertRaises(kind) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_a_result_looks_like_dasks_own(self):
        a, b = da.ones((5, 6, 7), chunks=(2, 4, 3), dtype="f"), da.ones((7, 4), chunks=(2, 3), dtype="f")
        ours, theirs = kops.dask.matmul(a, b), da.matmul(a, b)
        self.assertEqual((ours.shape, ours.dtype, ours.chunks), (theirs.shape, theirs.dtype, theirs.chunks))
        self.assertEqual(ours.name, kops.dask.matmul(a, b).name)
        names = {kops.dask.matmul(a, b, bias=bias, activation=activation).name for bias in (None, b[0], b[1])
                 for activation in ("none", "relu")}
        self.assertEqual(len(names), 6)
        self.assertEqual(kops.dask.transpose(a).chunks, a.swapaxes(1, 2).chunks)


class Chunks(harness.DaemonTest):
    """Computed in this process, without a cluster."""

    leaks_checked = False  # the client of kops.dask stays

    def setUp(self):
        super().setUp()
        os.environ["KOPS_SOCKET"] = self.daemon.socket
        kops._chunks._forget_here()

    by_numpy = 0

    def tearDown(self):
        self.assertEqual(kops.dask.calls()["numpy"], self.by_numpy)
        super().tearDown()

    def test_a_buffer_that_is_filled_anew_is_read_anew(self):
        w = np.ones((64, 64), np.float32)
        for x in np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32, "F"), np.zeros((8, 64, 64), np.float32)[3]:
            for value in 1, 2, 3:
                x[:] = value
                for d in da.from_array(x, chunks=64), da.from_array(x, chunks=32):
                    self.assertEqual(kops.dask.matmul(d, w).compute()[0, 0], 64 * value)
                self.assertEqual(kops.dask.transpose(x).compute()[5, 7], value)

    def test_a_task_that_fills_and_returns_one_buffer(self):
        buffer = np.zeros((16, 16), np.float32)

        def fill(value):
            buffer[:] = value
            return buffer

        for value in 1, 2, 3:
            d = da.from_delayed(dask.delayed(fill)(value), (16, 16), np.float32)
            self.assertEqual(kops.dask.matmul(d, np.eye(16, dtype=np.float32)).compute()[0, 0], value)

    def test_unknown_chunk_sizes_on_the_shared_axis(self):
        a, b = numbers(1, "f", 60, 20), numbers(2, "f", 60, 20)
        for x, y in [(filtered(a, 1), filtered(b, 0)), (filtered(a, 0), b), (a, filtered(b, 1)),
                     (filtered(a.rechunk(60), 1), filtered(b.rechunk(60), 0))]:
            ours, theirs = kops.dask.matmul(x, y), x @ y
            self.assertEqual(str(ours.chunks), str(theirs.chunks))
            self.assertTrue(np.allclose(*dask.compute(ours, theirs), atol=1e-5))

    def test_unknown_chunks_that_do_not_fit(self):
        x, y = filtered(da.ones((4, 6), chunks=6, dtype="f"), 1), filtered(da.ones((8, 4), chunks=8, dtype="f"), 0)
        with self.assertRaisesRegex(kops.ShapeError, "last axis of a"):
            kops.dask.matmul(x, y).compute()

    def test_no_chunk_of_unknown_size_is_left_out_or_repeated(self):
        """One index on the shared axis, and unknown ones in several chunks: Dask takes that for broadcasting."""
        column, row = da.ones((4, 1), chunks=(4, 1), dtype="f"), da.ones((1, 4), chunks=(1, 4), dtype="f")
        rows, columns = filtered(da.ones((6, 4), chunks=(2, 4), dtype="f"), 0), filtered(da.ones((4, 6), chunks=(4, 2), dtype="f"), 1)
        for x, y in (column, rows), (columns, row):
            with self.assertRaises(kops.ShapeError):
                kops.dask.matmul(x, y).compute()

    def test_bias_and_activation_come_last(self):
        """Cut along all axes, so that each chunk of the result is a sum of several products."""
        a, b, c = numbers(1, "f", 60, 20), numbers(2, "f", 60, 25), da.ones((3, 1, 60, 60), chunks=(2, 1, 30, 20), dtype="f")
        row = np.linspace(-9, 9, 60, dtype="f")
        for x, bias in (a, row), (a, row[:, None]), (a, da.from_array(row, chunks=7)), (a, numbers(3, "f", 60, 60)), \
                       (a, np.ones((1, 1), "f")), (c, row), (c, da.from_array(np.ones((2, 1, 60), "f"), chunks=1)[:1]):
            for activation, exact in ("none", x @ b + bias), ("relu", da.maximum(x @ b + bias, 0)), \
                                     ("silu", (x @ b + bias) / (1 + da.exp(-(x @ b + bias)))):
                ours = kops.dask.matmul(x, b, bias=bias, activation=activation)
                self.assertEqual(ours.shape, exact.shape)
                self.assertTrue(np.allclose(*dask.compute(ours, exact), atol=1e-4), (bias.shape, activation))

    def test_bias_of_unknown_chunk_sizes(self):
        a, b, bias = numbers(1, "f", 60, 20), numbers(2, "f", 60, 20), da.arange(60, chunks=20, dtype="f")
        ours = kops.dask.matmul(a, filtered(b, 1), bias=filtered(bias, 0), activation="relu")
        exact = da.maximum(a @ filtered(b, 1) + filtered(bias, 0), 0)
        self.assertTrue(np.allclose(*dask.compute(ours, exact), atol=1e-4))

    def test_big_endian_chunks(self):
        a, b = numbers(1, "f", 40, 20), numbers(2, "f", 40, 20)
        for x, y in (a.astype(">f4"), b), (a, b.astype(">f4")), (a.astype(">f4"), b.astype(">f4")):
            c = kops.dask.matmul(x, y)
            self.assertEqual(c.dtype, np.dtype("f"))
            ours, theirs = dask.compute(c, a @ b)
            self.assertTrue(ours.dtype.isnative and np.allclose(ours, theirs, atol=1e-5))
            s, t, before = dask.compute(kops.dask.softmax(y), kops.dask.transpose(y), b)
            self.assertTrue(s.dtype.isnative and np.allclose(s.sum(1), 1) and np.array_equal(t, before.T))

    def test_masked_chunks_that_dask_does_not_know_of(self):
        masked = np.ma.masked_less(np.eye(4, dtype=np.float32), 0.5)
        d = da.from_delayed(dask.delayed(lambda: masked)(), (4, 4), np.float32)
        for op in kops.dask.softmax, kops.dask.transpose, lambda x: kops.dask.matmul(x, np.eye(4, dtype=np.float32)):
            with self.assertRaisesRegex(kops.ArgumentError, "x.filled"):
                op(d).compute()


    def test_a_job_that_takes_too_long_is_cancelled(self):
        x = da.ones((1200, 1200), chunks=1200)
        with self.noting_cancels() as cancelled, self.assertLogs("kops.dask") as logged, \
                unittest.mock.patch.multiple(kops._chunks, LIMIT_S=0, FLOPS_PER_S=1e15):
            self.assertTrue((kops.dask.matmul(x, x).compute() == 1200).all())
        self.assertIn("NumPy computes this chunk", logged.output[0])
        self.by_numpy = 1
        logged.records.clear()  # they have the exception, and with it the arrays
        self.assertEqual(cancelled.call_count, 1)
        self.assert_memory_is_free()

    def test_ctrl_c_cancels_the_job(self):
        x = np.ones((1200, 1200))
        with self.noting_cancels() as cancelled, self.assertRaises(KeyboardInterrupt), \
                unittest.mock.patch.object(kops.Job, "wait", side_effect=KeyboardInterrupt):
            kops.dask._product(x, x, None, "f32")
        self.assertEqual(cancelled.call_count, 1)
        self.assert_memory_is_free()

    def noting_cancels(self):
        lib = kops._library.lib
        return unittest.mock.patch.object(lib, "kops_cancel", side_effect=lib.kops_cancel)

    def assert_memory_is_free(self):
        """Once the jobs that nobody waits for have ended."""
        session = kops._chunks._here._client._session
        with session.turn, session:
            for pointer in list(session.out):
                session.wait(pointer, None)
        gc.collect()
        kops._chunks._here._client.ping()  # what was due is done
        self.assertEqual((session.out, session.pool.live), ({}, 0))


class WithoutKopsd(unittest.TestCase):
    def setUp(self):
        os.environ["KOPS_SOCKET"] = "/no/such/socket"
        kops._chunks._forget_here()
        patch = unittest.mock.patch.object(kops._chunks, "AWAY_S", 3600)  # however slow the machine is
        patch.start()
        self.addCleanup(patch.stop)

    def test_one_thread_tries_to_connect(self):
        """The others do not wait as long again, and say nothing."""
        def connect(**_):
            time.sleep(0.1)  # while the others come
            raise kops.ConnectError(-1, "away")

        x = np.ones((2, 2), "f")
        with unittest.mock.patch.object(kops._chunks, "Client", side_effect=connect) as tried, \
                self.assertLogs("kops.dask", "WARNING") as logged, \
                concurrent.futures.ThreadPoolExecutor(8) as threads:
            for product in [threads.submit(kops.dask._product, x, x, None, "f32") for _ in range(8)]:
                self.assertTrue((product.result() == 2).all())
        self.assertEqual((tried.call_count, len(logged.output)), (1, 1), logged.output)

    def test_threads_that_lose_kopsd_say_so_once(self):
        chunks = kops._chunks.Chunks(1 << 20)
        with self.assertLogs("kops.dask", "WARNING") as logged:
            for _ in range(2):
                chunks._note(kops.ConnectError(-1, "away"))
        self.assertEqual(len(logged.output), 1)

    def test_numpy_computes(self):
        x = da.random.RandomState(1).uniform(-1, 1, (3, 50, 40), chunks=(2, 20, 30)).astype("f")
        before = kops.dask.calls()
        with self.assertLogs("kops.dask", "WARNING") as logged:
            for ours, exact in [(kops.dask.matmul(x, x.swapaxes(1, 2)), x @ x.swapaxes(1, 2)),
                                (kops.dask.softmax(x, 1, log=True), x - da.log(da.exp(x).sum(1, keepdims=True))),
                                (kops.dask.softmax(x, -1), da.exp(x) / da.exp(x).sum(2, keepdims=True)),
                                (kops.dask.transpose(x), x.swapaxes(1, 2)),
                                *((kops.dask.matmul(x, x.swapaxes(1, 2), bias=x[0, :, :1], activation=name),
                                   (x @ x.swapaxes(1, 2) + x[0, :, :1]).map_blocks(exact))
                                  for name, exact in ACTIVATIONS.items())]:
                ours, exact = da.compute(ours, exact)
                self.assertEqual(ours.dtype, np.float32)
                self.assertTrue(np.allclose(ours, exact, atol=1e-5))
        self.assertEqual(len(logged.output), 1, logged.output)
        self.assertEqual(kops.dask.calls()["kopsd"], before["kopsd"])


if __name__ == "__main__":
    unittest.main()
