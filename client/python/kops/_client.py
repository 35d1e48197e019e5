"""A client: a session, the ops as functions that run at once, and the jobs that these repeat."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import inf
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _array, _library, _ops, _receipt, _seen, _usage
from ._array import Array, DeviceArray, Layout, NDArray, Shape, layout
from ._desk import Desk
from ._job import Job, add_ops
from ._library import gid_of, lib, text, uid_of
from ._memory import Memory
from ._named import Named
from ._ops import Axes, Op, Operand, Result
from ._pool import Slab
from ._receipt import Receipt
from ._session import NativeJob, Session
from ._usage import PublishedBuffer, SessionInfo, TracedJob, User
from .errors import error

CALLS_MAX = 256     # that are kept for being repeated
OPS_MAX = 32        # of one call in one job; the message of a job has 16 KiB
CACHE_BYTES = 256 << 20


def _several(result: Result) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


@dataclass(frozen=True)
class Device:
    """A device of the daemon, in the words of kops.h."""

    name: str
    description: str
    disabled_kernels: str
    memory_bytes: int
    cache_bytes: int
    jobs_done: int
    jobs_failed: int
    queued: int
    running: int
    resident_bytes: int
    canary_age_us: int
    busy_us: float
    temperature_c: float
    power_w: float
    power_limit_w: float
    memory_used_bytes: int
    memory_free_bytes: int
    utilization: float


@dataclass(frozen=True)
class Info:
    """What the daemon has, in the words of kops.h."""

    daemon: str
    uptime_us: int
    sessions: int
    buffers: int
    mapped_bytes: int
    pinned_bytes: int
    pool_bytes: int
    devices: tuple[Device, ...]


class Call:
    """A job of one call, kept for calls with operands in the same places. libkops has the daemon prepare it the second
    time."""

    __slots__ = ("job", "argument", "last", "calls", "keys", "seen", "seen_as", "slabs", "written")

    def __init__(self, calls: dict[object, Call], seen: dict[object, _Seen], job: NativeJob, slabs: list[Slab],
                 written: list[Slab]) -> None:
        self.job = job
        self.argument = job.argument
        self.last = (job, 0.0, 0)  # for Client.receipt
        self.calls = calls
        self.keys: list[object] = []
        self.seen = seen
        self.seen_as: object = None  # the arrays that came last
        self.slabs = slabs
        self.written = written
        for slab in slabs:
            slab.calls.add(self)

    def know_as(self, key: object) -> None:
        self.keys.append(key)
        self.calls[key] = self

    def see(self, key: object, arrays: tuple[NDArray | None, ...]) -> None:
        """The same arrays came twice: they will come again. None: an operand that is absent."""
        if key != self.seen_as:
            self.seen.pop(self.seen_as, None)
            self.seen_as = key
        elif _seen.KNOWS and self.calls.get(self.keys[0]) is self:
            self.seen[key] = (self, *_seen.content(tuple(x for x in arrays if x is not None)))

    def forget(self) -> None:
        self.seen.pop(self.seen_as, None)
        for key in self.keys:
            self.calls.pop(key, None)
        for slab in self.slabs:
            slab.calls.discard(self)


_Seen = tuple[Union[Call, None], ctypes.c_void_p, object]
_UNSEEN: _Seen = (None, ctypes.c_void_p(), None)

_holds = lib.kops_python_holds


class Client(Named):
    """A connection to kopsd.

    socket: as for kops_open(), by default $KOPS_SOCKET, else one of the user's own, else /run/kopsd/kopsd.sock. name: for the daemon's log. timeout:
    seconds that calls wait at most. spin_us: microseconds for which calls look for the answer before they sleep.
    cache_bytes: memory of arrays that are gone, kept for later ones.

    Any thread may call it; they take turns, and one that waits for a job makes the others wait. Threads that are to work
    at the same time have one client each.
    """

    def __init__(self, socket: str | None = None, *, name: str | None = None, timeout: float = 30.0, spin_us: int = 0,
                 cache_bytes: int = CACHE_BYTES) -> None:
        self._session = Session(socket, name, timeout, spin_us, cache_bytes)
        self._calls: dict[object, Call] = {}
        self._seen: dict[object, _Seen] = {}  # by the identities of arrays
        # Shape and type of each result, by function and operands.
        self._results: dict[object, tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]] = {}
        self._last: tuple[NativeJob, float, int] | None = None

    # Arrays

    def empty(self, shape: Shape, dtype: DTypeLike = np.float32) -> NDArray:
        """A NumPy array in shared memory, with any content."""
        return _array.empty(self._session, _array.as_shape(shape), _array.as_dtype(dtype))

    def zeros(self, shape: Shape, dtype: DTypeLike = np.float32) -> NDArray:
        return _array.zeros(self._session, _array.as_shape(shape), _array.as_dtype(dtype))

    def asarray(self, value: ArrayLike, dtype: DTypeLike | None = None) -> NDArray:
        """value itself if it is in shared memory of this client and of this dtype, else a copy there."""
        return _array.asarray(self._session, value, dtype)

    def device_array(self, shape: Shape, dtype: DTypeLike = np.float32, device: str | None = None) -> DeviceArray:
        """Zeros in a device's memory, the daemon's first device by default."""
        return _array.device_array(self, self._session, _array.as_shape(shape), _array.as_dtype(dtype), device)

    def owns(self, x: object) -> bool:
        """Whether ops use x where it is, without a copy."""
        if isinstance(x, DeviceArray):
            return x._client is self
        try:
            return isinstance(x, np.ndarray) and _array.is_here(self._session, x)
        except AttributeError:  # a subclass whose elements are not all
            return False

    def memory(self) -> Memory:
        """with client.memory(): arrays that NumPy makes in the block, in this thread, are in shared memory, results and
        temporaries included. Each then takes some microseconds more to make."""
        return Memory(self._session)

    # Published arrays

    def publish(self, x: Operand, name: str, *, device: str | None = None, everybody: bool = False,
                group: int | str | None = None, keep: bool = False) -> Array:
        """Lets other processes attach the array by this name, and this process's user. Returns the published array: x if
        that is all of a device array, else a copy in memory of its own, on the device if one is given.

        Nobody can write it any more, and no op may, until unpublish(). The name ends with the client; keep: only by
        unpublish(). After a restart of kopsd arrays in shared memory are published again for as long as they are there.
        Those of devices are lost: publish them again.

        everybody: everybody may attach it
        group: members of this group may, by its name or gid; else this user's processes may
        """
        options = _library.PublishOptions(ctypes.sizeof(_library.PublishOptions), keep=keep)
        if everybody and group is not None:
            raise error("INVALID", "everybody and group exclude each other")
        if everybody:
            options.access = _library.EVERYBODY
        elif group is not None:
            options.access = _library.GROUP
            options.group = gid_of(group)
        return _array.publish(self, self._session, x, _name(name), options, device)

    def attach(self, name: str, user: int | str | None = None) -> Array:
        """The array that a user, by default this one, has published by this name: a NumPy array that can be read only, or
        a DeviceArray. It stays, also when its publisher goes. Ops that use it after a restart of kopsd raise LostError
        until it is published again."""
        return _array.attach(self, self._session, uid_of(user), _name(name))

    def unpublish(self, name: str, user: int | str | None = None) -> None:
        """Ends a name of this user, or for root of another. Who has the array attached keeps it."""
        self._session.unpublish(uid_of(user), _name(name))

    def buffers(self) -> list[PublishedBuffer]:
        """What this user may attach, the newest first."""
        return _usage.read(self._session, lib.kops_list_buffers, lib.kops_list_buffer)

    # Ops

    def matmul(self, a: Operand, b: Operand, out: Array | None = None, *, bias: Operand | None = None,
               activation: str = "none", conj_a: bool = False, conj_b: bool = False, precision: str = "f32",
               kernel: str | None = None) -> Any:
        """activation(a @ b + bias), with shapes as for numpy.matmul.

        bias: is broadcast to the result, as by NumPy
        activation: none, relu, gelu, gelu_tanh or silu
        conj_a, conj_b: multiply by the complex conjugate of a, of b
        """
        key = (_ops.matmul, id(a), id(b), id(bias), id(out), bool(conj_a), bool(conj_b), precision, activation, kernel)
        return self._op(key, (a, b, bias), out)

    def gemm(self, alpha: complex, a: Operand, b: Operand, beta: complex, c: Array, *, bias: Operand | None = None,
             activation: str = "none", conj_a: bool = False, conj_b: bool = False, precision: str = "f32",
             kernel: str | None = None) -> Any:
        """c = activation(alpha * a @ b + beta * c + bias); returns c. With beta == 0, c is not read.

        alpha, beta: complex numbers if the arrays are of complex numbers
        bias, activation, conj_a, conj_b: as for matmul()
        """
        key = (_ops.gemm, id(a), id(b), id(bias), id(c), complex(alpha), complex(beta), bool(conj_a), bool(conj_b), precision,
               activation, kernel)
        return self._op(key, (a, b, bias), c)

    # Made by scripts/gen-ops: described ops
    def softmax(self, x: Operand, axis: int = -1, *, scale: float = 1.0, log: bool = False, mask: Operand | None = None,
                out: Array | None = None, kernel: str | None = None) -> Any:
        """y = softmax(scale * x + mask) over the last axis, or its logarithm.

        x: 1 to 4 axes
        mask: x's shape; extents of 1, and missing leading ones, are repeated; zeros if absent
        axis: which axis of x is taken for the last
        scale: a factor of x; finite in f32
        log: take the logarithm
        The result: x's shape; numbers take the first array's type.
        out may be x, where that is not repeated.
        Where a row of scale * x + mask has NaN or +Inf, the row of y becomes NaN. Where it has -Inf only, y
        is NaN without a mask; with one it is 0, and its logarithm -Inf.
        """
        key = (_ops.softmax, id(x), id(mask), id(out), axis, float(scale), bool(log), kernel)
        return self._op(key, (x, mask), out)

    def transpose(self, x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y[…, j, i] = x[…, i, j], bit for bit.

        x: 2 to 4 axes
        The result: x's shape with the last two extents exchanged; numbers take the first array's type.
        No op needs it for an operand: ops take transposed views, and copy nothing.
        """
        key = (_ops.transpose, id(x), id(out), kernel)
        return self._op(key, (x,), out)

    def add(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y = a + b, rounded once.

        a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
        b: as a
        The result: 1 to 4 axes; numbers take the first array's type.
        out may be a or b, where that is not repeated.
        """
        key = (_ops.add, id(a), id(b), id(out), kernel)
        return self._op(key, (a, b), out)

    def copy(self, x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y = x, bit for bit.

        x: 1 to 4 axes
        The result: x's shape; numbers take the first array's type.
        x and y may be in memory of different kinds, such as shared memory and a device's.
        """
        key = (_ops.copy, id(x), id(out), kernel)
        return self._op(key, (x,), out)

    def reduce(self, x: Operand, kind: str = "sum", axis: Axes = -1, *, keepdims: bool = False,
               out: Array | None = None, kernel: str | None = None) -> Any:
        """y = the sum, the largest, the mean, the smallest or the product of x over its last axis.

        x: 1 to 4 axes, of complex numbers 1 to 3
        axis: which axis of x is taken for the last, or several; None: all
        keepdims: the result has them too, with one index
        kind: what to compute of each row; sum, max, mean, min or prod
        The result: x's shape without the last axis, or with 1 there; numbers take the first array's type.
        Of no element the sum is 0, the product 1, the largest -Inf, the smallest Inf and the mean NaN. A
        NaN among the elements gives NaN. A mean of finite numbers is finite, even if their sum is beyond
        the type's range. Such a sum is infinite, and may be where only a part of it is. So may a product,
        which may also be 0 where a part of it is too small. Products are made in f64. Complex numbers have
        sums and means.
        """
        key = (_ops.reduce, id(x), id(out), axis, bool(keepdims), kind, kernel)
        return self._op(key, (x,), out)

    def multiply(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y = a * b, element by element, rounded once.

        a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
        b: as a
        The result: 1 to 4 axes; numbers take the first array's type.
        out may be a or b, where that is not repeated.
        """
        key = (_ops.multiply, id(a), id(b), id(out), kernel)
        return self._op(key, (a, b), out)

    def layer_norm(self, x: Operand, weight: Operand | None = None, bias: Operand | None = None,
                   out: Array | None = None, *, residual: Operand | None = None, sum: Array | None = None,
                   axis: int = -1, eps: float = 1e-05, kernel: str | None = None) -> Any:
        """y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis.

        x: 1 to 4 axes
        weight: one axis, as long as x's last; ones if absent
        bias: one axis, as long as x's last; zeros if absent
        residual: x's shape; extents of 1, and missing leading ones, are repeated; added to x before, zeros if absent
        axis: which axis of x is taken for the last
        eps: added to the variance; 0 or more, finite in f32
        sum: x's shape; x + residual, if wanted, an array that gets it
        The result: x's shape; numbers take the first array's type.
        out may be x or residual, where that is not repeated.
        The variance is that of all elements of the row, not of a sample. A row with NaN or an infinity
        becomes NaN; so does one of f64 whose sum leaves the range. With a residual, x + residual takes the
        place of x, rounded to their type.
        """
        key = (_ops.layer_norm, id(x), id(weight), id(bias), id(residual), id(sum), id(out), axis, float(eps), kernel)
        return self._op(key, (x, weight, bias, residual, sum), out, 1)

    def gather(self, x: Operand, indices: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y[i, :] = x[indices[i], :], bit for bit.

        x: [rows, columns]; f32, f64, f16, bf16, i32, c64 or c128
        indices: 1 or 2 axes, of rows of x from 0 on; i32
        The result: the indices' axes, then x's columns; numbers take the first array's type.
        An index that is negative, or not below the number of rows, gives a row of zeros.
        """
        key = (_ops.gather, id(x), id(indices), id(out), kernel)
        return self._op(key, (x, indices), out)

    def rms_norm(self, x: Operand, weight: Operand | None = None, bias: Operand | None = None, out: Array | None = None,
                 *, residual: Operand | None = None, sum: Array | None = None, axis: int = -1, eps: float = 1e-05,
                 kernel: str | None = None) -> Any:
        """y = x / sqrt(mean of x^2 + eps) * weight + bias along the last axis.

        x: 1 to 4 axes
        weight: one axis, as long as x's last; ones if absent
        bias: one axis, as long as x's last; zeros if absent
        residual: x's shape; extents of 1, and missing leading ones, are repeated; added to x before, zeros if absent
        axis: which axis of x is taken for the last
        eps: added to the mean of squares; 0 or more, finite in f32
        sum: x's shape; x + residual, if wanted, an array that gets it
        The result: x's shape; numbers take the first array's type.
        out may be x or residual, where that is not repeated.
        A row with NaN becomes NaN. An infinity becomes NaN, and what is finite in its row 0. With a
        residual, x + residual takes the place of x, rounded to their type.
        """
        key = (_ops.rms_norm, id(x), id(weight), id(bias), id(residual), id(sum), id(out), axis, float(eps), kernel)
        return self._op(key, (x, weight, bias, residual, sum), out, 1)

    def subtract(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        """y = a - b, element by element, rounded once.

        a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
        b: as a
        The result: 1 to 4 axes; numbers take the first array's type.
        out may be a or b, where that is not repeated.
        """
        key = (_ops.subtract, id(a), id(b), id(out), kernel)
        return self._op(key, (a, b), out)

    def unary(self, x: Operand, out: Array | None = None, *, function: str = "none", scale: float = 1.0,
              low: float = -inf, high: float = inf, kernel: str | None = None) -> Any:
        """y = function(scale * x), limited to [low, high].

        x: 1 to 4 axes
        function: what is computed of scale * x; none, relu, gelu, gelu_tanh, silu, sigmoid, tanh, exp, log, sqrt or abs
        scale: a factor of x; finite in f32
        low: the least that y may be
        high: the most that y may be
        The result: x's shape; numbers take the first array's type.
        out may be x, where that is not repeated.
        NaN stays NaN. Where low is above high, y is high. Types but f64 are computed in f32, and low, high
        and scale * x are rounded to it. sigmoid is 1 / (1 + exp(-v)), silu v * sigmoid(v), gelu v * Phi(v),
        and gelu_tanh its approximation by tanh; the last three are NaN at -Inf. log and sqrt of negative
        numbers are NaN.
        """
        key = (_ops.unary, id(x), id(out), function, float(scale), float(low), float(high), kernel)
        return self._op(key, (x,), out)

    def attention(self, q: Operand, k: Operand, v: Operand, mask: Operand | None = None, lengths: Operand | None = None,
                  out: Array | None = None, *, lse: Array | None = None, scale: float = 0.0, causal: str = "none",
                  window: int = 0, kernel: str | None = None) -> Any:
        """o = softmax(scale * q * kT + mask) * v, for each batch and head.

        q: queries: [batch, heads, queries, head_dim], or without batch, or without heads too; head_dim is at most 1024; f32, f64, f16 or bf16
        k: keys: [batch, kv_heads, keys, head_dim]; kv_heads divides heads; q's type
        v: values: [batch, kv_heads, keys, value_dim]; value_dim is at most 1024; q's type
        mask: added to scale * q * kT; broadcast to [batch, heads, queries, keys]; q's type
        lengths: how many keys of each batch count, the first ones: [batch]; i32
        scale: factor of q * kT; 0: 1 / sqrt(head_dim); finite in f32
        causal: query i sees keys 0 to i (top_left), or to i + keys - queries (bottom_right), of the keys that count; none, top_left or bottom_right
        window: a query sees so many keys up to its own position, and beyond it too unless causal; 0: all; at most 2.14748e+09
        lse: the logarithm of the sum of exponentials of what a query sees: [batch, heads, queries]; f64 if q is, an array that gets it
        The result: [batch, heads, queries, value_dim]; numbers take the first array's type.
        kv_heads divides heads: neighbouring heads of q share one of k and v. A query that sees no key, or
        only keys whose mask is -Inf, gives zeros, and -Inf in lse. Keys from a batch's length on are not
        seen, whatever the query; a length below 0 counts as 0, and one beyond the keys as all of them. With
        bottom_right the last query is the one of the last key that counts. A value of v that is not finite
        may show in rows whose queries do not see its key.
        """
        key = (_ops.attention, id(q), id(k), id(v), id(mask), id(lengths), id(lse), id(out),
                               float(scale), causal, window, kernel)
        return self._op(key, (q, k, v, mask, lengths, lse), out, 1)

    def arg_reduce(self, x: Operand, kind: str = "max", axis: Axes = -1, *, keepdims: bool = False,
                   out: Array | None = None, kernel: str | None = None) -> Any:
        """y = the index of the largest or smallest element of x along its last axis.

        x: 1 to 4 axes; the last one has an element; f32, f64, f16 or bf16
        axis: which axis of x is taken for the last, or several; None: all
        keepdims: the result has them too, with one index
        kind: what to look for in each row; max or min
        The result: x's shape without the last axis, or with 1 there; numbers take the first array's type.
        Of equal elements it is the first. The first NaN counts as the largest, and as the smallest.
        """
        key = (_ops.arg_reduce, id(x), id(out), axis, bool(keepdims), kind, kernel)
        return self._op(key, (x,), out)

    def top_k(self, x: Operand, k: int = 1, axis: int = -1, *, kind: str = "largest", order: str = "value",
              out: tuple[Array, Array] | None = None, kernel: str | None = None) -> Any:
        """values = the k largest or smallest elements of x along its last axis, indices = where they are.

        x: 1 to 4 axes; f32, f64, f16 or bf16
        axis: which axis of x is taken for the last
        k: how many of each row; at most 1024
        kind: which elements; largest or smallest
        order: what the results are sorted by: the largest, or smallest, first; or the lowest index first; value or index
        The results are values and indices, in a tuple:
        values: x's shape with k along the last axis
        indices: the shape of values; where they are along x's last axis, if wanted
        Of equal elements the lower index comes first; -0 and 0 are equal. NaN counts as larger than all
        numbers.
        """
        key = (_ops.top_k, id(x), id(out), axis, k, kind, order, kernel)
        return self._op(key, (x,), out)

    def search(self, queries: Operand, base: Operand, k: int = 10, *, metric: str = "ip", filter: Operand | None = None,
               out: tuple[Array, Array] | None = None, kernel: str | None = None) -> Any:
        """values = the k best scores of each query with rows of base, indices = these rows.

        queries: [queries, columns]; up to 65536 columns; f32, f16 or bf16
        base: [rows, columns]; queries's type
        filter: [words] or [queries, words], words = rows / 32 rounded up; row i may come if bit i % 32 of word i / 32 is 1; all if absent; i32
        k: how many rows for each query; at most 256
        metric: the inner product, largest first; the squared distance, smallest first; or the cosine, largest first; ip, l2 or cosine
        The results are values and indices, in a tuple:
        values: [queries, k], the scores
        indices: [queries, k], rows of base, if wanted
        Scores are computed in f32, and their order is the result; of equal ones the lower index comes
        first. The cosine with a vector of zeros is 0. A row whose score is NaN, or whose bit in the filter
        is 0, never comes. Where fewer than k rows remain, the index is -1 and the value -Inf, or Inf for
        l2.
        """
        key = (_ops.search, id(queries), id(base), id(filter), id(out), k, metric, kernel)
        return self._op(key, (queries, base, filter), out)

    def cholesky(self, a: Operand, out: tuple[Array, Array] | None = None, *, upper: bool = False, keep: bool = False,
                 kernel: str | None = None) -> Any:
        """factor = L with a = L * LH, or U with a = UH * U.

        a: […, n, n]: symmetric or Hermitian matrices, of which one triangle is read; f32, f64, c64 or c128
        upper: a's upper triangle is read, and the factor is upper
        keep: the factor's other triangle stays as it is, instead of becoming zeros
        The results are factor and info, in a tuple:
        factor: a's shape
        info: […], [1] of one matrix: 0, or the order of the first leading minor that is not positive definite
        out may be a, where that is not repeated.
        LH is the conjugate transpose of L. Where a matrix is not positive definite, info is the order of
        the first leading minor that is not, or that has a NaN, and the factor's triangle is NaN. The
        imaginary parts of a's diagonal count as 0.
        """
        key = (_ops.cholesky, id(a), id(out), bool(upper), bool(keep), kernel)
        return self._op(key, (a,), out)

    def triangular_solve(self, a: Operand, b: Operand, out: Array | None = None, *, upper: bool = False,
                         unit: bool = False, conj_a: bool = False, right: bool = False,
                         kernel: str | None = None) -> Any:
        """x with a * x = b, or x * a = b, a triangular.

        a: […, n, n], of which one triangle is read; repeated along the axes before
        b: […, n, m], or […, m, n] with right
        upper: a's upper triangle is read
        unit: the diagonal counts as 1, and is not read
        conj_a: a stands for its conjugate; transposed, its view has the strides exchanged
        right: x * a = b
        The result: b's shape; numbers take the first array's type.
        out may be b, where that is not repeated.
        By substitution, so a 0 on the diagonal gives infinities and NaN, as BLAS's trsm does.
        """
        key = (_ops.triangular_solve, id(a), id(b), id(out), bool(upper), bool(unit), bool(conj_a), bool(right), kernel)
        return self._op(key, (a, b), out)

    def lu(self, a: Operand, out: tuple[Array, Array, Array] | None = None, *, kernel: str | None = None) -> Any:
        """lu = L and U with P * a = L * U, pivots = the exchanges of rows that make P.

        a: […, m, n]; f32, f64, c64 or c128
        The results are lu, pivots and info, in a tuple:
        lu: a's shape
        pivots: […, min(m, n)]: row i was exchanged with row pivots[i], from 0 on
        info: […], [1] of one matrix: 0, or the number, from 1 on, of the first diagonal element of U that is 0
        out may be a, where that is not repeated.
        L's diagonal of ones is left out. A pivot is the element of the largest |re| + |im| of its column,
        the first of equal ones. A column of zeros gives a 0 in U, which info tells; the factorisation goes
        on.
        """
        key = (_ops.lu, id(a), id(out), kernel)
        return self._op(key, (a,), out)

    # End of described ops

    @property
    def receipt(self) -> Receipt | None:
        """Of the last op that was run here, not in a Job, by whichever thread. One that took several jobs has that of
        its last."""
        with self._session.turn, self._session:
            if self._last is None:
                return None
            job, copy_us, copied_bytes = self._last
            return _receipt.read(job.pointer, copy_us, copied_bytes)

    # Jobs

    def job(self, *, device: str | None = None, queue: int = 0, priority: str = "normal", deadline: float | None = None,
            timed: bool = False) -> Job:
        """Several ops that are sent together; see Job."""
        return Job(self, self._session, device, queue, priority, deadline, timed)

    def _op(self, key: tuple[Any, ...], operands: tuple[Any, ...], out: Any, n_written: int = 0) -> Any:
        """Runs the job that had these arguments before, if there is one. key: the op's function, the identities of operands
        and out, the parameters. n_written: so many of the operands, the last ones, are further outputs or None."""
        further = [x for x in operands[len(operands) - n_written:] if x is not None]
        is_given = out is not None or bool(further)
        call, content, _ = self._seen.get(key, _UNSEEN)
        if call is None or not _holds(content):
            function, params = key[0], key[len(operands) + 2:]
            call, out = self._find(key, function, operands, out, params, further)
            if call is None:
                return self._first(function, operands, out, params, is_given)
        self._session.run(call, (operands, out), is_given)
        self._last = call.last
        return out

    def _find(self, ids: object, function: _ops.Function, operands: tuple[Any, ...], out: Any,
              params: tuple[Any, ...], further: list[Any]) -> tuple[Call | None, Any]:
        """The job, and the array of its result, by where the arrays lie. Addresses in kops memory are the same elements for
        as long as a job is kept."""
        is_given = out is not None
        try:
            key = (function, params, *map(layout, operands))
            if not is_given:
                if key not in self._results:
                    return None, None
                made = tuple(_array.empty(self._session, *x) for x in self._results[key])
                out = made if len(made) > 1 else made[0]
            results = _several(out)
            may_write = all(x.flags.writeable for x in (*results, *further))
            call = self._calls.get((*key, *map(layout, results))) if may_write else None
        except AttributeError:  # some have no layout
            return None, out
        if call is not None and is_given and not isinstance(out, tuple):  # whose identity says nothing of its arrays
            with self._session.turn, self._session:
                call.see(ids, (*operands, out))
        return call, out

    def _first(self, function: _ops.Function, operands: tuple[Any, ...], out: Any, params: tuple[Any, ...],
               is_given: bool) -> Result:
        desk = Desk(self, self._session)
        result, ops = function(desk, *operands, out, *params)
        desk.load()
        for i in range(0, len(ops), OPS_MAX):
            call = self._one_job(desk, ops[i:i + OPS_MAX], is_given)
        desk.store()
        if ops:
            self._last = (call.job, desk.copy_us, desk.copied_bytes)
        if not desk.copies and not desk.temporaries and 0 < len(ops) <= OPS_MAX:
            self._remember(call, function, operands, _several(result), params)
        return result

    def _remember(self, call: Call, function: _ops.Function, operands: tuple[Any, ...], results: tuple[Array, ...],
                  params: tuple[Any, ...]) -> None:
        """For _op()."""
        if not all(isinstance(x, np.ndarray) for x in results):
            return
        try:
            key = (function, params, *map(layout, operands))
        except AttributeError:
            return
        with self._session.turn, self._session:
            if self._calls.get(call.keys[0]) is call:
                call.know_as((*key, *map(layout, results)))
            while len(self._results) >= CALLS_MAX:
                del self._results[next(iter(self._results))]
            self._results[key] = tuple((x.shape, x.dtype) for x in results)

    def _one_job(self, desk: Desk, ops: list[Op], out_is_given: bool) -> Call:
        key = tuple((op.name, op.params, op.names, *map(layout, op.arrays)) for op in ops)
        with self._session.turn, self._session:
            call = self._calls.get(key)
            if call is None:
                call = self._new_call(ops)
                call.know_as(key)
        self._session.run(call, (desk, ops), out_is_given)
        return call

    def _new_call(self, ops: list[Op]) -> Call:
        while len(self._calls) >= CALLS_MAX:
            next(iter(self._calls.values())).forget()
        job = NativeJob(self._session)
        return Call(self._calls, self._seen, job, *add_ops(self._session, job, ops))

    # The daemon

    def ping(self) -> None:
        """Returns when every device passed its last self-check; else kops.Error."""
        with self._session.turn, self._session as session:
            session.check(lib.kops_ping(session.handle))

    def info(self) -> Info:
        pointer = ctypes.POINTER(_library.Info)()
        with self._session.turn, self._session as session:
            session.check(lib.kops_query(session.handle, pointer))
        try:
            i = pointer.contents
            devices = [_device(lib.kops_info_device(pointer, n).contents) for n in range(i.n_devices)]
            return Info(text(i.daemon), i.uptime_us, i.sessions, i.buffers, i.mapped_bytes, i.pinned_bytes, i.pool_bytes,
                        tuple(devices))
        finally:
            lib.kops_info_free(pointer)

    def users(self) -> list[User]:
        """The users with sessions, and those that left last, by uid, the largest first. The daemon's setting see-others
        says who sees others than itself."""
        return _usage.read(self._session, lib.kops_list_users, lib.kops_list_user)

    def sessions(self) -> list[SessionInfo]:
        """The sessions, the newest first."""
        return _usage.read(self._session, lib.kops_list_sessions, lib.kops_list_session)

    def trace(self, limit: int = 0, *, after: int = 0) -> list[TracedJob]:
        """The latest jobs that were answered, the latest first: those with a number above `after`, at most `limit`; 0: all
        that the daemon keeps."""
        return _usage.read(self._session, lib.kops_list_jobs, lib.kops_list_job, after, limit)

    def close(self) -> None:
        """Ends the client. The memory of its arrays stays until the last of them is gone, and its connection with it."""
        self._last = None
        self._session.close()
        self._calls.clear()
        self._seen.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a kops.Client cannot be pickled: its connection belongs to this process; call kops.connect() in "
                        "the other one")


def _name(name: str) -> bytes:
    return _library.without_nul(name.encode(), "name")


def _device(from_: Any) -> Device:
    values = {field[0]: getattr(from_, field[0]) for field in _library.DeviceInfo._fields_}
    values = {name: text(v) if isinstance(v, bytes) else v for name, v in values.items()}
    return Device(**values)
