"""Sentence by sentence what docs/protocol.md says of ids, order, views and ops, where no other test does."""
import fcntl
import itertools
import math
import os
import struct

from support import harness, wire
from support.harness import floats, unfloats
from support.wire import BF16, C64, C128, F16, F32, F64, I32, RESIDENT, attribute, instance, view

FLOATS = (F32, F64, F16, BF16)
DTYPES = (*FLOATS, I32, C64, C128)
F_SEAL_FUTURE_WRITE = 0x10


class Replies(harness.DaemonTest):
    def test_an_id_in_use(self):
        """Submit refuses the id of a job in flight, and says so first; Ping takes it."""
        c = self.client()
        op = self.slow_op(c, 200)
        c.start_submit(op, id=7)
        c.start_submit(op, id=7)
        c.start("ping", {}, id=7)
        replies = [c.receive() for _ in range(3)]
        self.assertEqual([r["id"] for r in replies], [7, 7, 7])
        self.assertEqual(wire.STATUS_NAME[replies[0]["status"]], "EXISTS")
        self.assertIsNotNone(replies[1]["pong"])
        self.assertIsNotNone(replies[2]["receipt"])

    def test_cancel(self):
        """Of one that waits, CANCELLED comes before the Cancel's answer."""
        c = self.client()
        op = self.slow_op(c, 10)
        other, running = self.occupy(300)
        queued = c.start_submit(op)
        cancel = c.start("cancel", {"job": queued})
        c.order.clear()
        c.wait(cancel)
        self.assertEqual(c.order, [queued, cancel])
        self.refused("CANCELLED", c.wait, queued)
        for job in running:
            other.wait(job)

    def device(self):
        return self.control.stats()["devices"][0]

    def assert_idle(self):
        self.assertEqual((self.device()["running"], self.device()["queued"]), (0, 0))

    def test_cancel_of_a_running_job(self):
        """It stops at its next pause: of 20 s of work the device has done a few parts."""
        c = self.client()
        long = c.start_submit(self.slow_op(c, 20_000))
        self.assertTrue(harness.eventually(self.control.any_running))
        before = self.device()["busy_us"]
        c.cancel(long)
        self.refused("CANCELLED", c.wait, long)
        self.assert_idle()
        self.assertLess(self.device()["busy_us"] - before, 10e6)
        self.refused("NOT_FOUND", c.cancel, long)
        c.submit(self.slow_op(c, 10))

    def test_cancel_of_a_paused_job(self):
        """Of two that take turns one is paused; asked for twice, too."""
        both = [self.client(name=name) for name in ("one", "two")]
        long = [c.start_submit(self.slow_op(c, 8_000)) for c in both]
        self.assertTrue(harness.eventually(
            lambda: sum(s["running"] for s in self.control.list_sessions() if s["client"] in ("one", "two")) == 2))
        for c, job in zip(both, long):
            cancels = [c.start("cancel", {"job": job}) for _ in range(2)]
            self.refused("CANCELLED", c.wait, job)
            c.wait(cancels[0])
            self.assertIn(wire.STATUS_NAME[c.wait_any(cancels[1])["status"]], ("OK", "NOT_FOUND"))
        self.assert_idle()
        both[0].submit(self.slow_op(both[0], 10))

    def test_cancel_and_leave(self):
        """The end of the session comes while the job is yet to stop."""
        for _ in range(3):
            c = self.client()
            job = c.start_submit(self.slow_op(c, 20_000))
            self.assertTrue(harness.eventually(self.control.any_running))
            c.start("cancel", {"job": job})
            c.close()
            self.assertTrue(harness.eventually(lambda: not self.control.any_running()))
        self.assert_idle()

    def test_cancel_of_a_prepared_run(self):
        """The next run of it begins at its beginning."""
        c = self.client()
        x, y = c.import_new(4096, floats([1.0])), c.import_new(4096)
        ops = [wire.copy(view(x, [1]), view(y, [1])), self.slow_op(c, 1000)]
        c.submit(ops, prepare=7, only_prepare=1)
        run = c.start("run", {"prepared": 7})
        self.assertTrue(harness.eventually(self.control.any_running))
        c.cancel(run)
        self.refused("CANCELLED", c.wait, run)
        c.maps[x][:4] = floats([2.0])
        c.run(7)
        self.assertEqual(unfloats(c.maps[y][:4]), [2.0])

    def test_cancel_of_a_job_that_cannot_be_paused(self):
        """BUSY, without a time; unless it is through already."""
        c = self.client()
        short = self.slow_op(c, 20)
        said = set()
        for _ in range(200):
            job = c.start_submit(short)
            reply = c.wait_any(c.start("cancel", {"job": job}))
            self.assertEqual(reply["retry_after_us"], 0)
            said.add(wire.STATUS_NAME[reply["status"]])
            if reply["status"] == 0:
                self.refused("CANCELLED", c.wait, job)
            else:
                c.wait(job)
        self.assertLessEqual(said, {"BUSY", "NOT_FOUND", "OK"})

    def test_a_failed_job_stops_none_behind_it(self):
        c = self.client()
        a, y = c.import_new(4096, floats([5.0])), c.import_new(4096)
        self.occupy(200)
        late = c.start_submit(wire.copy(view(a, [1]), view(y, [1])), queue=3, deadline_us=1000)
        behind = c.start_submit(wire.copy(view(a, [1]), view(y, [1], offset=8)), queue=3)
        self.refused("DEADLINE", c.wait, late)
        c.wait(behind)
        self.assertEqual(unfloats(c.maps[y][:12]), [0.0, 0.0, 5.0])

    def test_too_many_and_too_few(self):
        """Up to 16 extents are a bad request; more, and what the wire cannot say otherwise, end the session."""
        c = self.client()
        a = c.import_new(4096)
        self.refused("SHAPE", c.submit, wire.copy(view(a, [1] * 16), view(a, [1], offset=64)))
        self.refused("INVALID", c.submit, [])
        self.refused("INVALID", c.submit, {"kernel": ""})
        c.start_submit(wire.copy(view(a, [1] * 17), view(a, [1], offset=64)))
        self.assert_ended(c)

    def test_a_client_may_be_nameless(self):
        self.client(name="").ping()


class Memory(harness.DaemonTest):
    def test_alloc_shared_knows_no_device(self):
        c = self.client()
        request, _ = c.start_alloc(64, device="gpu7", lost=True)
        reply = c.wait(request)
        self.assertEqual((reply["lent"]["bytes"], reply["lent"]["device"]), (64, ""))
        (fd,) = reply["fds"]
        self.assertGreaterEqual(os.fstat(fd).st_size, 64)
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        self.assertEqual(seals & wire.SEALS, wire.SEALS)
        os.close(fd)

    def test_any_op_reads_and_writes_resident_memory(self):
        c = self.client()
        a, y = c.import_new(4096, floats([1, 2, 3, 4])), c.import_new(4096)
        r = c.resident(32)
        x, product = view(r, [2, 2]), view(r, [2, 2], offset=16)
        c.submit([wire.copy(view(a, [2, 2]), x), wire.gemm(x, x, product), wire.copy(product, view(y, [2, 2]))])
        self.assertEqual(unfloats(c.maps[y][:16]), [7, 10, 15, 22])

    def test_what_is_read_only(self):
        c = self.client()
        a = c.import_new(4096)
        for seal, flag in [(0, True), (fcntl.F_SEAL_WRITE, False), (F_SEAL_FUTURE_WRITE, False)]:
            fd = wire.memfd(4096, wire.SEALS | seal)
            b = c.import_fd(fd, 4096, read_only=flag)
            os.close(fd)
            c.submit(wire.copy(view(b, [4]), view(a, [4])))
            self.refused("READONLY", c.submit, wire.copy(view(a, [4]), view(b, [4])))
            c.drop(b)

    def test_a_read_only_descriptor(self):
        c = self.client()
        a = c.import_new(4096)
        fd = wire.memfd(4096)
        reader = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        b = c.import_fd(reader, 4096)
        os.close(reader)
        os.close(fd)
        self.refused("READONLY", c.submit, wire.copy(view(a, [4]), view(b, [4])))

    def test_overlap_is_seen_within_one_buffer_only(self):
        """One memfd under two ids: what copy would refuse on one buffer is accepted."""
        c = self.client()
        fd = wire.memfd(4096)
        os.pwrite(fd, floats([1, 2, 3, 4]), 0)
        a, b = c.import_fd(fd, 4096), c.import_fd(fd, 4096)
        self.refused("OVERLAP", c.submit, wire.copy(view(a, [4]), view(a, [4])))
        c.submit(wire.copy(view(a, [4]), view(b, [4])))
        self.assertEqual(unfloats(os.pread(fd, 16, 0)), [1, 2, 3, 4])
        os.close(fd)

    def test_ids_in_use(self):
        """Also while the Alloc is not answered, and free again as soon as a Drop was sent."""
        c = self.client()
        self.occupy(200)
        first, b = c.start_alloc(64, RESIDENT)
        self.refused("EXISTS", lambda: c.wait(c.start_alloc(64, buffer=b)[0]))
        dropped = c.start("drop", {"buffer": b})
        again, _ = c.start_alloc(64, RESIDENT, buffer=b)
        for request in (first, dropped, again):
            c.wait(request)

    def test_a_refused_alloc_leaves_no_id(self):
        c = self.client()
        y = c.import_new(64)
        request, b = c.start_alloc(1 << 60, RESIDENT)
        job = c.start_submit(wire.copy(view(b, [1]), view(y, [1])))
        self.refused("QUOTA", c.wait, request)
        self.refused("NOT_FOUND", c.wait, job)


class Views(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.a, self.y = self.c.import_new(4096), self.c.import_new(4096)

    def test_alignment(self):
        """A misaligned offset is INVALID, also one that lies outside; inside or outside is RANGE."""
        for dtype in DTYPES:
            size = wire.SIZES[dtype]
            out = view(self.y, [1], dtype=dtype)
            for offset in [1, size // 2, size + 1, 4096 + 1, (1 << 64) - 1]:
                self.refused("INVALID", self.c.submit, wire.copy(view(self.a, [1], dtype=dtype, offset=offset), out))
            self.refused("RANGE", self.c.submit, wire.copy(view(self.a, [1], dtype=dtype, offset=4096), out))
            self.c.submit(wire.copy(view(self.a, [1], dtype=dtype, offset=4096 - size), out))

    def test_strides(self):
        a, y = self.a, self.y
        self.c.maps[a][:16] = floats([1, 2, 3, 4])
        self.c.submit(wire.copy(view(a, [4], [-1], offset=12), view(y, [4])))
        self.assertEqual(unfloats(self.c.maps[y][:16]), [4, 3, 2, 1])
        self.c.submit(wire.copy(view(a, [3], [0]), view(y, [3])))
        self.assertEqual(unfloats(self.c.maps[y][:12]), [1, 1, 1])
        self.refused("OVERLAP", self.c.submit, wire.copy(view(a, [3]), view(y, [3], [0])))
        self.c.submit(wire.copy(view(a, [1, 3]), view(y, [1, 3], [0, 1])))  # one index: its stride says nothing
        self.refused("SHAPE", self.c.submit, wire.copy(view(a, [2, 2], [2]), view(y, [2, 2])))

    def test_what_leaves_its_buffer_is_described(self):
        def says(sentence, *args, **kwargs):
            refusal = self.refused("RANGE", self.c.submit, wire.copy(view(self.a, *args, **kwargs), view(self.y, [1])))
            self.assertIn(f"a view {sentence} exceeds buffer {self.a} of 4096 bytes", refusal.message)
        says("1025x1 of f32 at offset 0", [1025, 1])
        says("2 of f64 at offset 4088", [2], dtype=wire.F64, offset=4088)
        says("4x3 of f32 at offset 0, strides 1000, -1,", [4, 3], [1000, -1])
        huge = (1 << 63) - 1
        says(f"{huge}x2 of f32 at offset 0, strides {-huge}, {huge},", [huge, 2], [-huge, huge])

    def test_empty_views(self):
        a, y = self.a, self.y
        self.c.submit(wire.copy(view(a, [0]), view(y, [0])))
        self.c.submit(wire.copy(view(a, [0], offset=4096), view(y, [0])))
        self.refused("RANGE", self.c.submit, wire.copy(view(a, [0], offset=4100), view(y, [0])))
        self.c.maps[y][:16] = floats([1, 2, 3, 4])
        self.c.submit(wire.gemm(view(a, [2, 0]), view(a, [0, 2]), view(y, [2, 2]), beta=0.5))
        self.assertEqual(unfloats(self.c.maps[y][:16]), [0.5, 1, 1.5, 2])


class Ops(harness.DaemonTest):
    """The table of ops. x and x2 are read, y is written; all hold 4096 bytes."""

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.x, self.x2, self.y = (self.c.import_new(4096) for _ in range(3))

    def v(self, buffer, shape, dtype=F32, **options):
        return view(buffer, shape, dtype=dtype, **options)

    def unary(self, op, shape, y_shape=None, dtype=F32, y_dtype=None):
        x, y = self.v(self.x, shape, dtype), self.v(self.y, y_shape or shape, y_dtype or dtype)
        return {"softmax": wire.softmax, "transpose": wire.transpose, "copy": wire.copy}[op](x, y)

    def binary(self, op, a, b, y, dtypes=(F32, F32, F32)):
        make = {"add": wire.add, "gemm": wire.gemm}[op]
        return make(self.v(self.x, a, dtypes[0]), self.v(self.x2, b, dtypes[1]), self.v(self.y, y, dtypes[2]))

    def takes(self, op):
        self.c.submit(op)

    def refuses(self, status, op):
        self.refused(status, self.c.submit, op)

    def test_dtypes(self):
        table = {"softmax": FLOATS, "transpose": DTYPES, "copy": DTYPES}
        for op, taken in table.items():
            for dtype in DTYPES:
                job = self.unary(op, [2, 2], dtype=dtype)
                self.takes(job) if dtype in taken else self.refuses("DTYPE", job)
        for op, taken in {"add": (*FLOATS, C64, C128), "gemm": (*FLOATS, C64, C128)}.items():
            for dtype in DTYPES:
                job = self.binary(op, [2, 2], [2, 2], [2, 2], (dtype,) * 3)
                self.takes(job) if dtype in taken else self.refuses("DTYPE", job)

    def test_nothing_converts(self):
        for op in ("softmax", "transpose", "copy"):
            self.refuses("DTYPE", self.unary(op, [2, 2], dtype=F32, y_dtype=F16))
        for op, odd in itertools.product(("add", "gemm"), range(3)):
            dtypes = [F32] * 3
            dtypes[odd] = F16
            self.refuses("DTYPE", self.binary(op, [2, 2], [2, 2], [2, 2], dtypes))

    def test_ranks(self):
        for op in ("softmax", "copy"):
            for rank in (1, 2, 3, 4):
                self.takes(self.unary(op, [2] * rank))
            self.refuses("SHAPE", self.unary(op, [1, 3], [3]))
        self.refuses("SHAPE", self.unary("transpose", [4]))
        for rank in (2, 3, 4):
            lead = [2] * (rank - 2)
            self.takes(self.unary("transpose", [*lead, 2, 3], [*lead, 3, 2]))
            self.refuses("SHAPE", self.unary("transpose", [*lead, 2, 3]))
        self.refuses("SHAPE", self.unary("transpose", [1, 2, 3], [3, 2]))

    def test_gemm_shapes(self):
        for a, b, c in [([2, 3], [3, 4], [2, 4]), ([5, 2, 3], [5, 3, 4], [5, 2, 4]), ([2, 3], [5, 3, 4], [5, 2, 4]),
                        ([1, 2, 3], [5, 3, 4], [5, 2, 4]), ([2, 3], [3, 4], [5, 2, 4]), ([1, 2, 3], [3, 4], [2, 4])]:
            self.takes(self.binary("gemm", a, b, c))
        for a, b, c in [([2, 3], [4, 3], [2, 4]), ([5, 2, 3], [5, 3, 4], [2, 4]), ([2, 2, 3], [3, 3, 4], [3, 2, 4]),
                        ([3], [3, 4], [2, 4]), ([1, 1, 2, 3], [3, 4], [2, 4]), ([2, 3], [3, 4], [2, 3])]:
            self.refuses("SHAPE", self.binary("gemm", a, b, c))

    def test_add_repeats(self):
        for a, b, y in [([3], [2, 3], [2, 3]), ([2, 1], [1, 3], [2, 3]), ([1], [1], [2, 2, 2, 2]),
                        ([1, 1, 3], [3], [3])]:
            self.takes(self.binary("add", a, b, y))
        for a, b, y in [([2], [2, 3], [2, 3]), ([2, 3], [2, 3], [3]), ([2, 3], [2, 3], [1, 3])]:
            self.refuses("SHAPE", self.binary("add", a, b, y))

    def reduce(self, shape, y_shape, dtype=F32, y_dtype=None, kind=wire.SUM):
        return wire.reduce(self.v(self.x, shape, dtype), self.v(self.y, y_shape, y_dtype or dtype), kind)

    def test_reduce(self):
        for dtype in DTYPES:
            job = self.reduce([2, 3], [2], dtype)
            self.takes(job) if dtype in (*FLOATS, C64, C128) else self.refuses("DTYPE", job)
        self.refuses("SHAPE", self.reduce([2, 2, 2, 3], [2, 2, 2], C64))
        self.refuses("DTYPE", self.reduce([2, 3], [2], F32, F16))
        for shape, y in [([3], [1]), ([2, 3], [2]), ([2, 3], [2, 1]), ([2, 2, 2, 3], [2, 2, 2]), ([2, 0], [2]), ([0, 2], [0])]:
            self.takes(self.reduce(shape, y))
        for shape, y in [([3], [3]), ([2, 3], [3]), ([2, 3], [1, 2]), ([2, 3], [2, 3]), ([2, 2, 3], [2]), ([3], [1, 1])]:
            self.refuses("SHAPE", self.reduce(shape, y))
        self.refuses("INVALID", self.reduce([2, 3], [2], kind=5))
        self.refuses("OVERLAP", wire.reduce(view(self.x, [1]), view(self.x, [1])))

    def test_in_place(self):
        same, next_to = view(self.x, [2, 2]), view(self.x, [2, 2], offset=4)
        other = view(self.x2, [2, 2])
        for make in (wire.softmax, lambda x, y: wire.add(x, other, y), lambda x, y: wire.add(other, x, y)):
            self.takes(make(same, same))
            self.refuses("OVERLAP", make(same, next_to))
            self.refuses("OVERLAP", make(view(self.x, [2, 2], [1, 2]), same))
        for make in (wire.transpose, wire.copy, lambda x, y: wire.gemm(x, other, y),
                     lambda x, y: wire.gemm(other, x, y)):
            self.refuses("OVERLAP", make(same, same))
        self.refuses("OVERLAP", wire.add(view(self.x, [2]), other, same))

    def test_absent_parameters(self):
        c, x, y = self.c, self.x, self.y
        c.maps[x][:16] = floats([1, 2, 3, 4])
        vx, vy = view(x, [2, 2]), view(y, [2, 2])
        c.maps[y][:16] = floats([math.nan] * 4)
        c.submit({"gemm": {"a": vx, "b": vx, "c": vy}})
        self.assertEqual(unfloats(c.maps[y][:16]), [0] * 4)
        c.submit({"softmax": {"x": vx, "y": vy}})
        self.assertEqual(unfloats(c.maps[y][:16]), [0.5] * 4)
        c.submit({"reduce": {"x": vx, "y": view(y, [2])}})
        self.assertEqual(unfloats(c.maps[y][:8]), [3, 7])

    def test_gemm_reads_what_it_needs(self):
        c, x, y = self.c, self.x, self.y
        vx, vy = view(x, [2, 2]), view(y, [2, 2])
        c.maps[x][:16] = floats([math.nan] * 4)
        c.maps[y][:16] = floats([1, 2, 3, 4])
        c.submit(wire.gemm(vx, vx, vy, alpha=0.0, beta=2.0))
        self.assertEqual(unfloats(c.maps[y][:16]), [2, 4, 6, 8])

    def test_numbers_that_are_no_parameters(self):
        vx, vx2, vy = view(self.x, [2, 2]), view(self.x2, [2, 2]), view(self.y, [2, 2])
        doubles = [view(b, [2, 2], dtype=F64) for b in (self.x, self.x2, self.y)]
        for bad in (math.inf, math.nan, 1e39):
            self.refuses("INVALID", wire.softmax(vx, vy, scale=bad))
        self.refuses("INVALID", wire.gemm(vx, vx2, vy, alpha=1e39))
        self.refuses("INVALID", wire.gemm(vx, vx2, vy, beta=-1e39))
        self.takes(wire.gemm(vx, vx2, vy, alpha=math.inf))
        self.takes(wire.gemm(*doubles, alpha=1e39))
        for precision in (0, 1, 2, 3):
            self.takes(wire.gemm(*doubles, precision=precision))
        self.refuses("INVALID", wire.gemm(*doubles, precision=4))

    def test_softmax_of_what_is_no_number(self):
        c, x, y = self.c, self.x, self.y
        rows = [[0, math.nan], [0, math.inf], [-math.inf, -math.inf], [0, -math.inf]]
        c.maps[x][:32] = floats(sum(rows, []))
        c.submit(wire.softmax(view(x, [4, 2]), view(y, [4, 2])))
        got = unfloats(c.maps[y][:32])
        self.assertTrue(all(math.isnan(v) for v in got[:6]), got)
        self.assertEqual(got[6:], [1, 0])

    def test_the_types_of_16_bits(self):
        c, x, y = self.c, self.x, self.y
        c.maps[x][:4] = struct.pack("<2e", 1.5, -0.25)
        c.submit(wire.add(view(x, [2], dtype=F16), view(x, [2], dtype=F16), view(y, [2], dtype=F16)))
        self.assertEqual(struct.unpack("<2e", c.maps[y][:4]), (3.0, -0.5))
        upper = lambda v: struct.pack("<f", v)[2:]
        c.maps[x][:4] = upper(1.5) + upper(-0.25)
        c.submit(wire.add(view(x, [2], dtype=BF16), view(x, [2], dtype=BF16), view(y, [2], dtype=BF16)))
        self.assertEqual(c.maps[y][:4], upper(3.0) + upper(-0.5))

    def test_operands_and_kernels_that_are_missing(self):
        vx, vy = view(self.x, [2, 2]), view(self.y, [2, 2])
        self.refuses("INVALID", {"add": {"a": vx, "y": vy}})
        self.refuses("INVALID", {"gemm": {"a": vx, "b": vx}})
        self.refuses("UNSUPPORTED", {"kernel": "openblas", **wire.copy(vx, vy)})

    def test_a_job_is_refused_as_a_whole(self):
        """The second op is wrong: the first has not run either."""
        c, x, y = self.c, self.x, self.y
        c.maps[x][:4] = floats([3.0])
        self.refused("SHAPE", c.submit, [wire.copy(view(x, [1]), view(y, [1])), wire.copy(view(x, [2]), view(y, [1]))])
        self.assertEqual(unfloats(c.maps[y][:4]), [0.0])


class Instances(harness.DaemonTest):
    """Ops sent by names: the same results as by messages of their own. Buffers as in Ops."""

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.x, self.x2, self.y = (self.c.import_new(4096) for _ in range(3))
        self.c.maps[self.x][:32] = floats([1, -2, 3, 0.5, -5, 6, 7, 8])
        self.c.maps[self.x2][:32] = floats([0.25, 2, -1, 4, 3, 2, 1, 9])
        self.vx, self.vx2, self.vy = (view(b, [2, 4]) for b in (self.x, self.x2, self.y))
        self.xy = {"x": self.vx, "y": self.vy}

    def result(self, op):
        self.c.maps[self.y][:64] = floats([7.0] * 16)
        receipt = self.c.submit(op)
        return self.c.maps[self.y][:64], [(o["op"], o["kernel"], o["flops"], o["dtype"], o["shape"])
                                          for o in receipt["ops"]]

    def test_the_same_as_by_messages(self):
        self.assertTrue(self.c.welcome["instances"])
        vx, vx2, vy, xy = self.vx, self.vx2, self.vy, self.xy
        square, rows = view(self.y, [2, 2]), view(self.y, [2])
        turned = view(self.x2, [4, 2])
        for typed, by_names in (
                (wire.gemm(vx, turned, square, 0.5, 2.0, 1),
                 instance("gemm", {"c": square, "b": turned, "a": vx},
                          {"beta": 2.0, "precision": "ieee", "alpha": 0.5})),
                (wire.softmax(vx, vy, 0.25, True), instance("softmax", xy, {"log": True, "scale": 0.25})),
                (wire.transpose(vx, view(self.y, [4, 2])),
                 instance("transpose", {"x": vx, "y": view(self.y, [4, 2])})),
                (wire.add(vx, vx2, vy), instance("add", {"a": vx, "b": vx2, "y": vy})),
                (wire.copy(vx, vy), instance("copy", xy)),
                (wire.reduce(vx, rows, wire.MAX), instance("reduce", {"x": vx, "y": rows}, {"kind": "max"}))):
            self.assertEqual(self.result(by_names), self.result(typed), typed)

    def test_defaults(self):
        square, turned = view(self.y, [2, 2]), view(self.x2, [4, 2])
        for typed, by_names in (
                (wire.gemm(self.vx, turned, square, 1.0, 0.0, 0),
                 instance("gemm", {"a": self.vx, "b": turned, "c": square})),
                (wire.softmax(self.vx, self.vy, 1.0, False), instance("softmax", self.xy)),
                (wire.softmax(self.vx, self.vy, 0.0, False), instance("softmax", self.xy, {"scale": 0.0}))):
            self.assertEqual(self.result(by_names), self.result(typed), typed)

    def test_in_a_job_with_others(self):
        self.c.submit([instance("copy", self.xy), wire.add(self.vy, self.vy, self.vy)])
        self.assertEqual(unfloats(self.c.maps[self.y][:16]), [2, -4, 6, 1])

    def test_a_kernel_by_name(self):
        receipt = self.c.submit(instance("copy", self.xy, kernel="reference"))
        self.assertEqual(receipt["ops"][0]["kernel"], "reference")
        self.refused("UNSUPPORTED", self.c.submit, instance("copy", self.xy, kernel="openblas"))

    def test_prepared(self):
        self.c.call("submit", {"ops": [instance("copy", self.xy)], "prepare": 3})
        self.c.maps[self.y][:4] = floats([9.0])
        self.c.call("run", {"prepared": 3})
        self.assertEqual(unfloats(self.c.maps[self.y][:4]), [1.0])

    def refuses(self, status, says, op):
        self.assertIn(says, self.refused(status, self.c.submit, op).message)

    def test_names_that_there_are_not(self):
        self.refuses("INVALID", 'there is no op "sotfmax"', instance("sotfmax", self.xy))
        self.refuses("INVALID", 'there is no op ""', {"instance": {}})
        self.refuses("INVALID", 'there is no op "' + "é" * 3, instance("é" * 1000, self.xy))
        self.refuses("INVALID", 'copy has no operand "z"', instance("copy", {**self.xy, "z": self.vx}))
        self.refuses("INVALID", 'copy has no operand ""', instance("copy", {**self.xy, "": self.vx}))
        self.refuses("INVALID", 'copy has no attribute "scale"', instance("copy", self.xy, {"scale": 1.0}))
        self.refuses("INVALID", 'kind cannot be "product"',
                     instance("reduce", {"x": self.vx, "y": view(self.y, [2])}, {"kind": "product"}))

    def test_operands_that_are_missing_or_given_twice(self):
        twice = instance("copy", self.xy)
        twice["instance"]["operands"].append({"name": "x", "view": self.vx2})
        self.refuses("INVALID", "operand x of copy is given twice", twice)
        self.refuses("INVALID", "operand y of copy is missing", instance("copy", {"x": self.vx}))
        self.refuses("INVALID", "is missing", instance("copy", {}))
        bare = instance("copy", {"x": self.vx})
        bare["instance"]["operands"].append({"name": "y"})
        self.refuses("INVALID", "operand y of copy has no view", bare)

    def test_attributes_of_wrong_types_and_values(self):
        self.refuses("INVALID", "scale is a number", instance("softmax", self.xy, {"scale": 1}))
        self.refuses("INVALID", "scale is a number", instance("softmax", self.xy, {"scale": "1"}))
        self.refuses("INVALID", "log is a flag", instance("softmax", self.xy, {"log": 1.0}))
        for bad in (math.nan, math.inf, 1e39):
            self.refuses("INVALID", "it must be a finite f32 number", instance("softmax", self.xy, {"scale": bad}))
        twice = instance("softmax", self.xy, {"scale": 1.0})
        twice["instance"]["attributes"].append(attribute("scale", 2.0))
        self.refuses("INVALID", "attribute scale of softmax is given twice", twice)
        empty = instance("softmax", self.xy)
        empty["instance"]["attributes"].append({"name": "scale"})
        self.refuses("INVALID", "scale is a number", empty)

    def test_views_are_checked_as_ever(self):
        self.refuses("SHAPE", "the shapes must be equal", instance("copy", {"x": self.vx, "y": view(self.y, [8])}))
        self.refuses("DTYPE", "one type", instance("copy", {"x": self.vx, "y": view(self.y, [2, 4], dtype=F64)}))
        self.refuses("OVERLAP", "overlaps", instance("copy", {"x": self.vx, "y": self.vx}))
        self.refuses("NOT_FOUND", "no buffer", instance("copy", {"x": self.vx, "y": view(999, [2, 4])}))
        self.refuses("RANGE", "exceeds buffer", instance("copy", {"x": view(self.x, [4096]), "y": self.vy}))

    def test_two_values_end_the_session(self):
        op = instance("softmax", self.xy)
        op["instance"]["attributes"].append({"name": "scale", "number": 1.0, "flag": True})
        with self.assertRaises(wire.Ended):
            self.c.submit(op)


class LongMessages(harness.DaemonTest):
    """Jobs of many ops are unpacked, bound and planned in turns of their own."""

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.buffers = [self.c.import_new(4096) for _ in range(64)]
        self.ops = [wire.copy(view(a, [1]), view(a, [1], offset=64)) for a in self.buffers]

    def assert_nothing_is_mapped(self):
        self.assertTrue(harness.eventually(lambda: self.control.stats()["mapped_bytes"] == 0))

    def test_before_hello(self):
        c = self.client(hello=False)
        c.start_submit(self.ops)
        self.assert_ended(c)

    def test_an_op_that_is_wrong_holds_no_buffer(self):
        for i in (0, 1, 15, 16, 17, 47, 48, 63):
            with self.subTest(op=i):
                ops = self.ops[:]
                ops[i] = wire.copy(view(self.buffers[i], [2]), view(self.buffers[i], [1], offset=64))
                refusal = self.refused("SHAPE", self.c.submit, ops)
                self.assertIn(f"op {i + 1} of 64 (copy)", str(refusal))
        for b in self.buffers:
            self.c.wait(self.c.start("drop", {"buffer": b}))
        self.assert_nothing_is_mapped()

    def test_others_between_its_turns(self):
        """Its own session reads nothing more meanwhile; others do, and their jobs have their own values."""
        other = self.client()
        x = other.import_new(4096, floats([3.0]))
        for k, b in enumerate(self.buffers):
            self.c.maps[b][:4] = floats([float(k)])
        jobs = [self.c.start_submit(self.ops) for _ in range(8)]
        drops = [self.c.start("drop", {"buffer": b}) for b in self.buffers]
        for _ in range(20):
            other.submit(wire.copy(view(x, [1]), view(x, [1], offset=4)))
        for id in jobs + drops:
            self.c.wait(id)
        for k, b in enumerate(self.buffers):
            self.assertEqual(unfloats(self.c.maps[b][64:68]), [float(k)])
        self.assertEqual(unfloats(other.maps[x][4:8]), [3.0])

    def test_clients_that_leave_meanwhile(self):
        for _ in range(50):
            c = self.client()
            b = c.import_new(4096)
            c.start_submit([wire.copy(view(b, [1]), view(b, [1], offset=64))] * 64, prepare=1)
            c.close()
        self.c.close()
        self.assert_nothing_is_mapped()


if __name__ == "__main__":
    harness.main()
