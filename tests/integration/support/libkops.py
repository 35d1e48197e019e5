"""libkops through ctypes, as far as the tests need it."""
import ctypes

import numpy as np

from .harness import LIBKOPS

N = 48
STATE, INTERRUPTED, CONNECT = -34, -18, -32
F32, F64, I32 = 1, 2, 5
MAX = 1


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("socket", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint32)]


class View(ctypes.Structure):
    _fields_ = [("buffer", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("dtype", ctypes.c_int),
                ("rank", ctypes.c_uint32), ("shape", ctypes.c_uint64 * 8), ("strides", ctypes.c_int64 * 8),
                ("reserved", ctypes.c_uint64 * 2)]


BufferCallback = JobCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def load_library():
    """Not in builds with sanitizers, which Python cannot load."""
    lib = ctypes.CDLL(LIBKOPS)
    pointer, u64, i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
    f32, f64 = ctypes.c_float, ctypes.c_double
    for name, result, arguments in [
            ("kops_open", i32, [ctypes.POINTER(pointer), ctypes.POINTER(Options), ctypes.c_char_p, ctypes.c_size_t]),
            ("kops_close", None, [pointer]),
            ("kops_error", ctypes.c_char_p, [pointer]),
            ("kops_ping", i32, [pointer]),
            ("kops_alloc", i32, [pointer, u64, ctypes.c_uint, ctypes.c_char_p, ctypes.POINTER(pointer)]),
            ("kops_free", None, [pointer]),
            ("kops_data", pointer, [pointer]),
            ("kops_matrix", View, [pointer, u64, i32, u64, u64, u64]),
            ("kops_open_start", i32,
             [ctypes.POINTER(pointer), ctypes.POINTER(Options), ctypes.c_char_p, ctypes.c_size_t]),
            ("kops_alloc_start", i32, [pointer, u64, ctypes.c_uint, ctypes.c_char_p, BufferCallback, pointer,
                                       ctypes.POINTER(pointer)]),
            ("kops_import_start", i32, [pointer, i32, u64, ctypes.c_uint, BufferCallback, pointer,
                                        ctypes.POINTER(pointer)]),
            ("kops_submit", i32, [pointer, JobCallback, pointer]),
            ("kops_cancel", i32, [pointer]),
            ("kops_job_free", None, [pointer]),
            ("kops_fd", i32, [pointer]),
            ("kops_events", ctypes.c_short, [pointer]),
            ("kops_timeout", i32, [pointer]),
            ("kops_process", i32, [pointer]),
            ("kops_job_new", i32, [pointer, pointer, ctypes.POINTER(pointer)]),
            ("kops_job_copy", i32, [pointer, View, View, ctypes.c_char_p]),
            ("kops_job_reduce", i32, [pointer, View, View, i32, ctypes.c_char_p]),
            ("kops_job_prepare", i32, [pointer]),
            ("kops_run", i32, [pointer]),
            ("kops_run_for", i32, [pointer, i32]),
            ("kops_job_is_out", ctypes.c_bool, [pointer]),
            ("kops_wait", i32, [pointer, i32]),
            ("kops_buffer_wait", i32, [pointer, i32]),
            ("kops_buffer_is_busy", ctypes.c_bool, [pointer]),
            ("kops_buffer_wait_idle", i32, [pointer, i32]),
            ("kops_transposed", View, [View]),
            ("kops_sgemm", i32, [pointer, i32, i32, u64, u64, u64, f32, pointer, u64, pointer, u64, f32, pointer, u64]),
            ("kops_dgemm", i32, [pointer, i32, i32, u64, u64, u64, f64, pointer, u64, pointer, u64, f64, pointer, u64]),
            ("kops_softmax", i32, [pointer, View, View, f64]),
            ("kops_transpose", i32, [pointer, View, View]),
            ("kops_add", i32, [pointer, View, View, View]),
            ("kops_copy", i32, [pointer, View, View]),
            ("kops_gather", i32, [pointer, View, View, View]),
            ("kops_reduce", i32, [pointer, View, View, i32]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Handle:
    """A handle with three matrices of N × N floats."""

    def __init__(self, lib, socket, timeout_ms=0):
        self.lib = lib
        self.k = ctypes.c_void_p()
        why = ctypes.create_string_buffer(512)
        options = Options(ctypes.sizeof(Options), socket.encode(), b"test", timeout_ms)
        if lib.kops_open(ctypes.byref(self.k), ctypes.byref(options), why, 512) < 0:
            raise OSError(why.value.decode())
        try:
            self.buffers = [self.alloc() for _ in range(3)]
        except OSError:
            self.close()
            raise

    def alloc(self):
        buffer = ctypes.c_void_p()
        if self.lib.kops_alloc(self.k, N * N * 4, 0, None, ctypes.byref(buffer)) < 0:
            raise OSError(self.error())
        return buffer

    def matrix(self, i):
        floats = ctypes.cast(self.lib.kops_data(self.buffers[i]), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(floats, (N, N))

    def multiply(self):
        a, b, c = self.buffers
        return self.lib.kops_sgemm(self.k, 0, 0, N, N, N, 1, a, N, b, N, 0, c, N)

    def job(self, terms):
        """y = x of the first two matrices: of each number the largest of so many that are all the same."""
        job = ctypes.c_void_p()
        if self.lib.kops_job_new(self.k, None, ctypes.byref(job)) < 0:
            raise OSError(self.error())
        x, y = (self.lib.kops_matrix(b, 0, F32, N, N, 0) for b in self.buffers[:2])
        x.rank, x.shape[2], x.strides[2] = 3, terms, 0
        if self.lib.kops_job_reduce(job, x, y, MAX, None) < 0:
            raise OSError(self.error())
        return job

    def run(self, job):
        return self.lib.kops_run(job)

    def error(self):
        return self.lib.kops_error(self.k).decode()

    def products(self, rng, n):
        """How many of n products are wrong."""
        wrong = 0
        for _ in range(n):
            a, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in range(2))
            self.matrix(0)[:], self.matrix(1)[:], self.matrix(2)[:] = a, b, np.nan
            if self.multiply() != 0:
                raise OSError(self.error())
            wrong += not np.array_equal(self.matrix(2), a @ b)  # small integers: exact
        return wrong

    def close(self):
        self.lib.kops_close(self.k)
        self.k = None
