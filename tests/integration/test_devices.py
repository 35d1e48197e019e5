"""Several devices, and devices that fail, on simulated GPUs (simulated_gpu.c)."""
import math
import os
import random
import signal
import subprocess
import time
import unittest

from support import harness, wire
from support.wire import F16

SIMULATED = os.environ.get("KOPS_TEST_KOPSD_SIMULATED", "")
EXIT_DEVICE_FAILED = 70
CROWD_N = 16
CROWD_BYTES = 4 * CROWD_N * CROWD_N


class SimulatedDaemon(harness.Daemon):
    def __init__(self, **settings):
        super().__init__(**{"devices": "auto", "hang_timeout": "1s", "warm_pool": "2M", **settings})

    def make(self, name, text=""):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return f.read()

    def take(self, name):
        os.remove(os.path.join(self.folder, name))

    def has(self, name):
        return os.path.exists(os.path.join(self.folder, name))

    def start(self):
        if os.path.exists(self.log_path):
            os.remove(self.log_path)
        return super().start(SIMULATED_GPU=self.folder)


class Devices(unittest.TestCase):
    slow_op = harness.DaemonTest.slow_op
    _rate = {}
    random = random.Random(harness.SEED)

    def setUp(self):
        harness.KOPSD = SIMULATED
        self.daemon = SimulatedDaemon()
        self.addCleanup(self.daemon.remove)

    def connect(self):
        c = self.daemon.connect()
        self.addCleanup(c.close)
        return c

    def names(self):
        return [d["name"] for d in self.connect().describe()["devices"]]

    def product(self, c, **options):
        """1×2 times 2×1: the answer and the receipt."""
        a, y = c.import_new(16, harness.floats([3, 4, 5, 6])), c.import_new(4)
        receipt = c.submit(wire.gemm(wire.view(a, [1, 2]), wire.view(a, [2, 1], offset=8), wire.view(y, [1, 1])),
                           **options)
        value = harness.unfloats(c.maps[y][:4])[0]
        c.drop(a)
        c.drop(y)
        return value, receipt

    def temperatures(self, statistics):
        return sorted(d["temperature_c"] for d in statistics["devices"])

    def test_sensors(self):
        """Temperature, power and memory, a second old at most; the CPU tells its memory only. A driver that hangs keeps
        nobody for more than a second."""
        self.daemon.start()
        c = self.connect()
        first = c.stats()
        self.assertEqual(self.temperatures(first), [0, 40, 41])
        self.assertEqual([(d["power_w"], d["power_limit_w"]) for d in first["devices"]], [(123.5, 700)] * 2 + [(0, 0)])
        self.assertEqual([(d["memory_used_bytes"], d["memory_free_bytes"], d["utilization"]) for d in first["devices"][:2]],
                         [(3 << 30, 5 << 30, 0.25)] * 2)
        self.assertGreater(first["devices"][2]["memory_free_bytes"], 0)
        time.sleep(1.05)
        self.daemon.make("hang-sensors")
        asked = [c.start("stats", {}) for _ in range(3)]
        with self.daemon.connect() as gone:
            gone.start("stats", {})
            gone.ping()
        self.product(c)
        time.sleep(1.05)
        self.assertEqual(self.temperatures(self.connect().stats()), [0, 40, 41])
        for id in asked:
            c.wait(id)
        time.sleep(1.05)
        c.stats()  # one that no other question follows, and that no device asked about tells
        self.daemon.take("hang-sensors")
        self.assertTrue(harness.eventually(lambda: max(self.temperatures(c.stats())) > 41))
        time.sleep(1.05)
        c.start("stats", {})
        c.ping()
        self.assertEqual(self.daemon.stop(), 0)

    def let_reference_be_fast(self):
        """In products of 128×128 matrices, against what is expected."""
        self.daemon.make("rivals", "openblas 100000 3000\nreference 110000 300\n")
        self.daemon.settings["devices"] = "gpu0"

    def squares(self, c, n, **options):
        """Receipts of n jobs' last ops, each a product of 128×128 matrices whose result is checked."""
        size = 128
        x, y = c.import_new(4 * size * size, harness.floats([1 / 8] * size * size)), c.import_new(4 * size * size)
        op = wire.gemm(*[wire.view(b, [size, size]) for b in (x, x, y)], kernel=options.pop("kernel", ""))
        ops = [op] * options.pop("ops", 1)
        receipts = []
        for _ in range(n):
            c.maps[y][:4 * size * size] = b"\xff" * (4 * size * size)
            receipts.append(c.submit(ops, **options)["ops"][-1])
            self.assertEqual(harness.unfloats(c.maps[y][:4 * size * size]), [size / 64] * size * size)
        c.drop(x)
        c.drop(y)
        return receipts

    def settle(self, c):
        """Buffers and the result of a prepared product of random numbers, about which all has been told."""
        a, b = (c.import_new(CROWD_BYTES, harness.floats([self.random.uniform(-1, 1) for _ in range(CROWD_N * CROWD_N)]))
                for _ in range(2))
        y = c.import_new(CROWD_BYTES)
        c.submit(wire.gemm(*[wire.view(x, [CROWD_N, CROWD_N]) for x in (a, b, y)]), prepare=1)
        while not c.run(1)["as_before"]:
            pass
        return a, y, c.maps[y][:CROWD_BYTES]

    def check_crowd(self, gather, let_go):
        """Equal products of several clients wait together. One is withdrawn, one has NaN in its first row, the client of
        one is killed: the others get what they get alone, bit for bit. Whether the first could be withdrawn."""
        clients = [self.connect() for _ in range(8)]
        products = [self.settle(c) for c in clients]
        rings = [c.open_ring(4) for c in clients]
        for (_, y, _), c in zip(products, clients):
            c.maps[y][:CROWD_BYTES] = b"\xff" * CROWD_BYTES
        row = 4 * CROWD_N
        clients[1].maps[products[1][0]][:row] = b"\xff" * row
        gather()
        ids = [ring.put(1) for ring in rings]
        for c in clients:
            c.ping()  # its run is taken
        withdrawn = clients[2].wait_any(clients[2].start("cancel", {"job": ids[2]}))["status"] == 0
        clients[3].close()
        let_go()
        if withdrawn:
            self.assertEqual(wire.STATUS_NAME[clients[2].wait_any(ids[2])["status"]], "CANCELLED")
            self.assertEqual(clients[2].maps[products[2][1]][:CROWD_BYTES], b"\xff" * CROWD_BYTES)
        for i in [0, 1, *([] if withdrawn else [2]), *range(4, 8)]:
            _, y, alone = products[i]
            self.assertEqual(rings[i].wait()["status"], 0)
            found = clients[i].maps[y][:CROWD_BYTES]
            if i == 1:
                self.assertTrue(all(math.isnan(x) for x in harness.unfloats(found[:row])))
                found = alone[:row] + found[row:]
            self.assertEqual(found, alone, f"product {i}")
        return withdrawn

    def test_runs_that_wait_together_on_a_gpu(self):
        self.daemon.settings.update(devices="gpu0", hang_timeout="60s")
        self.daemon.make("together", "0")
        self.daemon.start()
        self.assertFalse(self.check_crowd(lambda: self.daemon.make("gather"), lambda: self.daemon.take("gather")))
        self.assertEqual(self.daemon.read("together"), "8")

    def test_runs_that_wait_together_on_the_cpu(self):
        self.daemon.settings["devices"] = "cpu"
        self.daemon.start()
        busy = self.connect()
        op = self.slow_op(busy, 300)

        def occupy():
            busy.start_submit(op, priority=wire.HIGH)  # it does not give way
            busy.stats()
        self.assertTrue(self.check_crowd(occupy, lambda: None))

    def test_auto_takes_what_jobs_of_the_shape_showed_to_be_fastest(self):
        """Jobs 9 to 16 are trials."""
        self.let_reference_be_fast()
        self.daemon.start()
        c = self.connect()
        kernels = [op["kernel"] for op in self.squares(c, 20)]
        self.assertEqual(kernels, ["openblas"] * 11 + ["reference"] * 3 + ["openblas"] * 2 + ["reference"] * 4)
        [settled] = self.squares(c, 1)
        self.assertRegex(settled["why"], r"^fastest for this shape: \S+ us, openblas took \S+ us$")
        self.assertEqual(self.squares(c, 1, kernel="openblas")[0]["kernel"], "openblas")
        self.daemon.reload()
        self.assertEqual(self.squares(c, 1)[0]["kernel"], "reference")
        self.daemon.reload(autotune=0)
        self.assertEqual({op["kernel"] for op in self.squares(c, 20)}, {"openblas"})
        self.assertEqual(self.daemon.stop(), 0)

    def test_jobs_of_several_equal_ops_have_trials_of_their_own(self):
        self.let_reference_be_fast()
        self.daemon.start()
        c = self.connect()
        for ops in (1, 3):
            kernels = [op["kernel"] for op in self.squares(c, 20, ops=ops)]
            self.assertEqual(kernels, ["openblas"] * 11 + ["reference"] * 3 + ["openblas"] * 2 + ["reference"] * 4)
        self.assertEqual(self.squares(c, 1, ops=2)[0]["kernel"], "reference")
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_kernel_that_jobs_show_to_be_slow_is_left_again(self):
        self.daemon.make("rivals", "openblas 100000 300\nreference 110000 3000\n")
        self.daemon.settings["devices"] = "gpu0"
        self.daemon.start()
        c = self.connect()
        kernels = [op["kernel"] for op in self.squares(c, 30)]
        self.assertEqual(kernels, ["openblas"] * 11 + ["reference"] * 2 + ["openblas"] * 17)
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_kernel_that_the_device_cannot_take_costs_no_job(self):
        """`openblas` comes into question, and wants more workspace for such strides than there is memory."""
        k, times = 10_000_000, harness.count(12, 3)
        self.daemon.make("rivals", "openblas 110000 1\nreference 100000 1\n")
        self.daemon.make("memory", str(8 << 20))
        self.daemon.settings.update(devices="gpu0", hang_timeout="60s")
        self.daemon.start()
        c = self.connect()
        x, y = c.import_new(4 * k), c.import_new(64)
        # One element: in parts of K the op is smaller, but not small enough.
        views = [wire.view(x, [1, k], [2 * k, 2], dtype=F16), wire.view(x, [k, 1], [2, 2], dtype=F16),
                 wire.view(y, [1, 1], dtype=F16)]
        with self.assertRaises(wire.Refused) as caught:
            c.submit(wire.gemm(*views, kernel="openblas"))
        self.assertEqual(caught.exception.name, "NOMEM")
        self.assertEqual([c.submit(wire.gemm(*views))["ops"][0]["kernel"] for _ in range(times)], ["reference"] * times)
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    def test_what_a_device_learned_is_its_own(self):
        """Jobs on one GPU's buffers, which the other cannot take, change nothing that jobs there showed."""
        self.let_reference_be_fast()
        self.daemon.settings["devices"] = "gpu"
        self.daemon.start()
        c = self.connect()

        def last_kernel(device, jobs):
            b = c.resident(3 * 4 * 128 * 128, device=device)
            views = [wire.view(b, [128, 128], offset=i * 4 * 128 * 128) for i in range(3)]
            receipts = [c.submit(wire.gemm(*views)) for _ in range(jobs)]
            c.drop(b)
            self.assertEqual({r["device"] for r in receipts}, {device})
            return receipts[-1]["ops"][0]["kernel"]

        self.assertEqual(last_kernel("gpu0", 20), "reference")
        self.assertEqual(last_kernel("gpu1", 1), "openblas")
        self.assertEqual(last_kernel("gpu0", 1), "reference")
        self.assertEqual(last_kernel("gpu1", 20), "reference")
        self.assertEqual(last_kernel("gpu0", 1), "reference")
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    def test_receipts_tell_whether_kernels_are_still_tried(self):
        self.let_reference_be_fast()
        self.daemon.start()
        c = self.connect()
        learning = [bool(op["learning"]) for op in self.squares(c, 20)]
        self.assertEqual(learning, [True] * 16 + [False] * 4)
        self.assertFalse(self.squares(c, 1, kernel="openblas")[0]["learning"])
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    @unittest.skipIf(harness.QUICK, "measures, which sanitizers have nothing to say about")
    def test_bench_measures_what_a_device_settles_on(self):
        self.let_reference_be_fast()
        self.daemon.start()
        for words in (["128"], ["128", "--cache", "warm"]):
            r = subprocess.run([harness.KOPS_BENCH, "gemm", *words, "--json", "--reps", "3"],
                               env=harness.client_env(self.daemon.socket), capture_output=True, timeout=600, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn('"kernel": "reference"', r.stdout)
            self.daemon.reload(autotune=0)
            self.daemon.reload(autotune=1)
        self.assertEqual(self.daemon.stop(), 0)

    def check_that_busy_gpus_are_passed_over(self, c):
        busy = self.connect()
        n = 1 << 16  # by plan it takes long beside what kernels on trial for the product may differ by
        op = wire.copy(*[wire.view(busy.import_new(4 * n), [n]) for _ in range(2)])

        def pass_over(first):
            """The device that a product takes while the first one is busy, and the seconds until then."""
            self.daemon.make("hold")
            began = time.monotonic()
            held = busy.start_submit(op, device=first)
            self.assertTrue(harness.eventually(lambda: not self.daemon.has("hold")))
            taken, seconds = self.product(c)[1]["device"], time.monotonic() - began
            busy.submit(op, device=first)  # behind it, which lets it go
            busy.wait(held)
            return taken, seconds
        for first, second in (("gpu0", "gpu1"), ("gpu1", "gpu0")):
            for _ in range(50):
                taken, seconds = pass_over(first)
                if taken == second or seconds < 0.05:
                    break  # otherwise the machine was busy until kopsd thought the first one nearly done
            self.assertEqual(taken, second)

    def test_prepared_jobs_move_seldom(self):
        """They spread over the GPUs, but one that has a little less to do is no reason to make them anew, and none at all for
        those that name theirs."""
        jobs, times, n = 32, 10, 128
        self.daemon.settings.update(devices="gpu", autotune=0)
        self.daemon.start()
        c = self.connect()
        b = c.import_new(12 * n * n)
        op = wire.gemm(*[wire.view(b, [n, n], offset=i * 4 * n * n) for i in range(3)])

        def count_moves(device):
            for i in range(jobs):
                c.submit(op, device=device, queue=i, prepare=1 + i)
            moves = 0
            for _ in range(times):
                for run in [c.start("run", {"prepared": 1 + i}) for i in range(jobs)]:
                    moves += not c.wait(run)["receipt"]["as_before"]
            return moves

        self.assertLess(count_moves(""), jobs * times // 2)
        self.assertGreater(min(d["jobs_done"] for d in c.stats()["devices"]), jobs * times // 8)
        self.assertEqual(count_moves("gpu0"), 0)
        c.close()
        self.assertEqual(self.daemon.stop(), 0)

    def test_auto_takes_every_gpu_and_the_cpu_and_prefers_gpus(self):
        self.daemon.settings["hang_timeout"] = "60s"
        self.daemon.start()
        self.assertEqual(self.names(), ["gpu0", "gpu1", "cpu"])
        c = self.connect()
        value, receipt = self.product(c)
        self.assertEqual((value, receipt["device"]), (39.0, "gpu0"))
        for name in ("gpu0", "gpu1", "cpu"):
            value, receipt = self.product(c, device=name)
            self.assertEqual((value, receipt["device"]), (39.0, name))
        self.check_that_busy_gpus_are_passed_over(c)
        c.ping()
        self.assertEqual(self.daemon.stop(), 0)

    def test_settings_choose_devices(self):
        for setting, want in (("gpu", ["gpu0", "gpu1"]), ("gpu1,cpu", ["gpu1", "cpu"]), ("cpu", ["cpu"])):
            self.daemon.write_config(devices=setting)
            self.daemon.start()
            self.assertEqual(self.names(), want)
            self.assertEqual(self.daemon.stop(), 0)

    def test_no_gpu_is_an_error_only_where_one_is_asked_for(self):
        self.daemon.make("count", "0")
        self.daemon.start()
        self.assertEqual(self.names(), ["cpu"])
        self.assertIn(b"no gpu: the simulation has no GPU", self.daemon.log())
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.write_config(devices="gpu")
        with self.assertRaises(AssertionError):
            self.daemon.start()
        self.assertIn(b"devices asks for gpu, but the simulation has no GPU", self.daemon.log())

    def test_auto_goes_on_without_a_gpu_that_does_not_open(self):
        self.daemon.make("no-open")
        self.daemon.start()
        self.assertEqual(self.names(), ["gpu1", "cpu"])
        self.assertIn(b"cannot open device gpu0: simulated: all of its memory is taken", self.daemon.log())
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_resident_buffer_binds_its_jobs_to_its_device(self):
        self.daemon.start()
        c = self.connect()
        r = c.resident(16, device="gpu1")
        x = c.import_new(16, harness.floats([1, 2, 3, 4]))
        receipt = c.submit(wire.copy(wire.view(x, [4]), wire.view(r, [4])))
        self.assertEqual(receipt["device"], "gpu1")
        with self.assertRaises(wire.Refused) as caught:
            c.submit(wire.copy(wire.view(x, [4]), wire.view(r, [4])), device="gpu0")
        self.assertEqual(caught.exception.name, "DEVICE")
        other = c.resident(16, device="cpu")
        with self.assertRaises(wire.Refused) as caught:
            c.submit(wire.copy(wire.view(other, [4]), wire.view(r, [4])))
        self.assertEqual(caught.exception.name, "DEVICE")
        with self.assertRaises(wire.Refused) as caught:
            c.resident(65 << 20, device="gpu0")
        self.assertEqual(caught.exception.name, "NOMEM")
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_kernel_that_fails_its_self_test_is_disabled(self):
        self.daemon.make("wrong-kernel")
        self.daemon.write_config(devices="gpu0")
        self.daemon.start()
        c = self.connect()
        self.assertEqual(c.describe()["devices"][0]["disabled_kernels"], "gemm/reference")
        self.assertIn(b"disabled after a failed self-test: gemm/reference", self.daemon.log())
        self.assertEqual(self.product(c)[0], 39.0)
        a = c.import_new(16)
        with self.assertRaises(wire.Refused) as caught:
            c.submit(wire.gemm(*[wire.view(a, [1, 1], offset=4 * i) for i in range(3)], kernel="reference"))
        self.assertEqual(caught.exception.name, "UNSUPPORTED")
        self.assertEqual(self.daemon.stop(), 0)

    def test_big_imports_are_pinned_within_the_budget_and_given_back(self):
        self.daemon.write_config(devices="gpu0", max_pinned_per_uid="3M")
        self.daemon.start()
        c = self.connect()
        self.assertTrue(harness.eventually(lambda: c.stats()["pool_bytes"] > 0))
        before = c.stats()["pinned_bytes"]
        buffers = [c.import_new(1 << 20) for _ in range(4)]
        for b in buffers:
            c.submit(wire.copy(wire.view(b, [16]), wire.view(b, [16], offset=4096)))
        self.assertEqual(c.stats()["pinned_bytes"] - before, 3 << 20)
        for b in buffers:
            c.drop(b)
        self.assertTrue(harness.eventually(lambda: c.stats()["pinned_bytes"] == before))
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_broken_device_ends_the_process_without_an_answer(self):
        self.daemon.write_config(devices="gpu0")
        self.daemon.start()
        c = self.connect()
        self.daemon.make("fault")
        with self.assertRaises(wire.Ended):
            self.product(c)
        self.assertEqual(self.daemon.wait(10), EXIT_DEVICE_FAILED)
        self.assertIn(b"device gpu0 failed: simulated: an illegal memory access", self.daemon.log())

    def test_a_hung_device_ends_the_process(self):
        self.daemon.write_config(devices="gpu0")
        self.daemon.start()
        c = self.connect()
        self.daemon.make("hang")
        begun = time.monotonic()
        with self.assertRaises(wire.Ended):
            self.product(c)
        self.assertEqual(self.daemon.wait(10), EXIT_DEVICE_FAILED)
        self.assertGreater(time.monotonic() - begun, 0.9)
        self.assertIn(b"no job finished within hang-timeout", self.daemon.log())

    def test_a_short_job_does_not_wait_until_a_long_one_ends(self):
        """A GPU computes them beside each other. Here the long one begins only when another comes after it."""
        self.daemon.make("rivals", "openblas 20000000 1\nreference 20000000 1\n")
        self.daemon.write_config(devices="gpu0")
        self.daemon.start()
        heavy, light = self.connect(), self.connect()
        self.daemon.make("hold")
        held = heavy.start_submit(self.cube(heavy))
        self.assertTrue(harness.eventually(lambda: not self.daemon.has("hold")))
        light.submit(self.copy(light, 100))
        heavy.wait(held)
        self.assertEqual(self.daemon.stop(), 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
    def test_a_short_job_passes_a_long_one_that_is_due_and_finds_no_room(self):
        """One user's long job fills a GPU; another's, which came before the short one, waits for its end."""
        self.daemon.make("rivals", "openblas 45000000 1\nreference 45000000 1\n")
        self.daemon.write_config(devices="gpu0", hang_timeout="60s", drain_timeout="200ms")
        self.daemon.start()
        os.chmod(self.daemon.socket, 0o666)
        heavy = self.connect()
        self.daemon.make("hang")
        heavy.start_submit(self.cube(heavy))
        self.assertTrue(harness.eventually(lambda: not self.daemon.has("hang")))
        due, light = self.daemon.connect_as(61001), self.daemon.connect_as(61002)
        for c in due, light:
            self.addCleanup(c.close)
        due.start_submit(self.cube(due))
        self.assertTrue(harness.eventually(lambda: self.queued() == 1))
        light.submit(self.copy(light, 100))
        self.assertEqual(self.queued(), 1)
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(10), 0)

    def queued(self):
        return self.connect().stats()["devices"][0]["queued"]

    @staticmethod
    def cube(c):
        x, y = c.import_new(4 * 64 * 64), c.import_new(4 * 64 * 64)
        return wire.gemm(*[wire.view(b, [64, 64]) for b in (x, x, y)])

    def test_a_daemon_that_was_stopped_gives_its_devices_a_second_look(self):
        """After SIGSTOP and SIGCONT a run has been in flight for longer than hang-timeout, and the device is well.

        The first look comes before any request. The run comes back when a later job starts, so it cannot save the daemon
        from that look, and is long back at the second look, a second later."""
        self.daemon.write_config(devices="gpu0")
        for _ in range(10):
            self.daemon.start()
            c = self.connect()
            self.daemon.make("hold")
            held = c.start_submit(self.copy(c, 100))
            self.assertTrue(harness.eventually(lambda: not self.daemon.has("hold")))
            c.stats()
            self.daemon.signal(signal.SIGSTOP)
            time.sleep(1.1)  # hang-timeout is 1 s
            continued = time.monotonic()
            self.daemon.signal(signal.SIGCONT)
            try:
                c.stats()
                c.submit(self.copy(c, 200), queue=1)
                c.wait(held)
            except wire.Ended:
                if time.monotonic() - continued < 0.5:
                    raise
                self.daemon.wait()  # this machine was too busy for three requests in a second
                continue
            self.assertEqual(self.daemon.stop(), 0)
            return
        self.skipTest("this machine is too busy")

    def die_at(self, *elements):
        """Copies of so many elements, a device for each; one is the daemon's end. What comes after is another process."""
        c = self.daemon.connect()
        ops = [self.copy(c, n) for n in elements]
        self.daemon.make("fault")
        self.daemon.signal(signal.SIGSTOP)  # so that all are read at one go
        for i, op in enumerate(ops):
            c.start_submit(op, device=f"gpu{i}", queue=i)
        self.daemon.signal(signal.SIGCONT)
        self.assertEqual(self.daemon.wait(), EXIT_DEVICE_FAILED)
        c.close()
        if os.path.exists(os.path.join(self.daemon.folder, "fault")):
            os.remove(os.path.join(self.daemon.folder, "fault"))
        self.daemon.start()

    def copy(self, c, elements):
        b = c.import_new(1 << 16)
        return wire.copy(wire.view(b, [elements]), wire.view(b, [elements], offset=1 << 15))

    def test_what_cannot_be_paused_is_bound_by_max_hold(self):
        self.daemon.settings.update(devices="gpu0", hang_timeout="60s")
        self.daemon.start()
        c, n = self.connect(), 1 << 22
        row = wire.view(c.import_new(2 * n), [1, n], dtype=wire.F16)
        op = {"kernel": "reference", **wire.softmax(row, row)}
        c.submit(op)
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.make("uncut")
        self.daemon.start()
        c = self.connect()
        row = wire.view(c.import_new(2 * n), [1, n], dtype=wire.F16)
        op = {"kernel": "reference", **wire.softmax(row, row)}
        with self.assertRaises(wire.Refused) as caught:
            c.submit(op)
        self.assertEqual(caught.exception.name, "QUOTA")
        self.assertRegex(caught.exception.message, r"op 1 of 1 \(softmax, kernel reference\) cannot be paused, and its "
                         r"estimated run time of 0\.[0-9]+ s exceeds the limit of 0\.1 s \(max-hold\); split the op")
        self.daemon.reload(max_hold="20s")
        c.submit(op)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_job_at_work_at_two_deaths_is_refused(self):
        self.daemon.settings["devices"] = "gpu0"
        self.daemon.start()
        for _ in range(2):
            self.die_at(1000)
        c = self.connect()
        with self.assertRaises(wire.Refused) as caught:
            c.submit(self.copy(c, 1000))
        self.assertEqual(caught.exception.name, "INTERRUPTED")
        self.assertIn("running at the last 2 crashes of kopsd, the last time alone", caught.exception.message)
        c.submit(self.copy(c, 1001))
        self.assertEqual(self.daemon.stop(), 0)
        # An orderly restart forgets nothing of that.
        self.daemon.start()
        c = self.connect()
        with self.assertRaises(wire.Refused):
            c.submit(self.copy(c, 1000))
        self.assertEqual(self.daemon.stop(), 0)

    def test_suspects_run_alone_and_are_forgiven(self):
        """Of the jobs that were at work only one is to blame, and the others show that they are not."""
        self.daemon.settings["devices"] = "gpu0,gpu1"
        self.daemon.start()

        self.die_at(2000, 3000)
        c = self.connect()
        for n in (2000, 3000):
            for _ in range(3):
                c.submit(self.copy(c, n))
        c.close()
        # One more death with them at work is the first again.
        self.die_at(2000, 3000)
        c = self.connect()
        ids = [c.start_submit(self.copy(c, n), device=f"gpu{i}", queue=i) for n in (2000, 3000) for i in (0, 1)]
        for i in ids:
            c.wait(i)
        self.assertEqual(self.daemon.stop(), 0)

    def long_product(self, c, **options):
        """On the CPU, of many seconds."""
        a, y, k = c.resident(4096, device="cpu", **options), c.import_new(64 * 64 * 4), 1 << 23
        return wire.gemm(wire.view(a, [64, k], [0, 0]), wire.view(a, [k, 64], [0, 0]), wire.view(y, [64, 64]),
                         kernel="reference")

    def kill_at_long_product(self):
        self.daemon.make("count", "1")
        self.daemon.settings["hang_timeout"] = "60s"
        self.daemon.start()
        c = self.connect()
        c.start_submit(self.long_product(c), device="cpu")
        self.assertTrue(harness.eventually(c.any_running))
        time.sleep(0.3)
        self.daemon.kill_and_start()

    def test_a_suspect_gives_way_to_other_devices(self):
        self.kill_at_long_product()
        c, other = self.connect(), self.connect()
        suspect = c.start_submit(self.long_product(c), device="cpu")
        self.assertTrue(harness.eventually(c.any_running))
        op = self.copy(other, 4)
        for _ in range(10):
            other.submit(op, device="gpu0")
        self.assertTrue(other.any_running())  # the suspect, which has given way meanwhile
        c.cancel(suspect)
        self.assertEqual(wire.STATUS_NAME[c.wait_any(suspect)["status"]], "CANCELLED")
        self.assertFalse(other.any_running())
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_suspect_that_ends_at_its_start_leaves_nobody_waiting(self):
        """Devices before its own in the list waited for it, a job of theirs paused."""
        self.kill_at_long_product()
        c, other = self.connect(), self.connect()
        long = other.start_submit(self.slow_op(other, 1000), device="gpu0", queue=1)
        suspect = c.start_submit(self.long_product(c, lost=True), device="cpu")
        c.stats()
        behind = other.start_submit(self.copy(other, 4), device="gpu0", queue=2)
        self.assertEqual(wire.STATUS_NAME[c.wait_any(suspect)["status"]], "LOST")
        other.sock.settimeout(harness.PATIENCE_S)
        other.wait(behind)
        other.wait(long)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_fault_in_a_canary_ends_the_process_too(self):
        self.daemon.write_config(devices="gpu0")
        self.daemon.start()
        c = self.connect()
        time.sleep(1.1)  # the first canary is no longer fresh, so Ping runs another
        self.daemon.make("fault")
        with self.assertRaises((wire.Ended, wire.Refused)):
            c.ping()
        self.assertEqual(self.daemon.wait(10), EXIT_DEVICE_FAILED)

    def test_a_hung_canary_ends_the_process_too(self):
        for stop in (False, True):
            self.daemon.write_config(devices="gpu0")
            self.daemon.start()
            c = self.connect()
            time.sleep(1.1)  # the first canary is no longer fresh, so Ping runs another
            self.daemon.make("hang")
            c.start("ping", {})
            if stop:
                time.sleep(0.2)
                self.daemon.signal(signal.SIGTERM)
            self.assertEqual(self.daemon.wait(10), EXIT_DEVICE_FAILED)

    def test_lent_memory_is_pinned_within_the_budget(self):
        self.daemon.write_config(devices="gpu0", max_pinned_per_uid="3M", warm_pool=1)
        self.daemon.start()
        c = self.connect()
        for _ in range(3):
            c.lend(2 << 20)
        self.assertEqual(c.stats()["pinned_bytes"], 2 << 20)
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as f:
            locked = next(int(line.split()[1]) for line in f if line.startswith("VmLck:"))
        if not harness.QUICK:  # with AddressSanitizer mlock() does nothing
            self.assertEqual(locked, 2 << 10)
        self.assertEqual(self.daemon.stop(), 0)

    def test_lent_memory_pinned_later_is_known_as_pinned(self):
        """Who lets go of memory that is registered must unregister it, also when a job has registered it."""
        self.daemon.write_config(devices="gpu0", warm_pool=1, pool_cache="64M")
        self.daemon.make("no-pin")
        self.daemon.start()
        c = self.connect()
        b = c.lend(2 << 20)
        self.assertEqual(c.stats()["pinned_bytes"], 0)
        os.remove(os.path.join(self.daemon.folder, "no-pin"))
        c.submit(wire.copy(wire.view(b, [16]), wire.view(b, [16], offset=4096)))
        self.assertEqual(c.stats()["pinned_bytes"], 2 << 20)
        c.drop(b)
        self.assertTrue(harness.eventually(lambda: c.stats()["pinned_bytes"] == 0))
        time.sleep(0.2)  # it is being zeroed
        c.lend(2 << 20)
        self.assertEqual(c.stats()["pinned_bytes"], 2 << 20)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_stop_while_a_device_hangs_does_not_hang(self):
        self.daemon.write_config(devices="gpu0", hang_timeout="60s", drain_timeout="200ms")
        self.daemon.start()
        c = self.connect()
        self.daemon.make("hang")
        a = c.import_new(16)
        c.start_submit(wire.copy(wire.view(a, [1]), wire.view(a, [1], offset=4)))
        time.sleep(0.2)
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(10), 0)


if __name__ == "__main__":
    if not os.access(SIMULATED, os.X_OK):
        raise SystemExit("KOPS_TEST_KOPSD_SIMULATED must name a kopsd beside a simulated kops-cuda.so; run through ctest")
    harness.main()
