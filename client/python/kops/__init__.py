"""Matrix jobs on this host's GPUs (or CPU), through the kopsd daemon.

    import kops
    a = kops.asarray(x)         # a NumPy array in memory that kopsd sees too
    c = kops.matmul(a, a.T)     # computed there, without a copy

Arrays of kops are NumPy arrays. Ops take others too, and copy them. The functions of this module use a client of this
process that they make when they first need one; kops.connect() makes others. docs/python.md has the rest.
"""
from __future__ import annotations

import importlib
import threading
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _library, _named, _ops, _session
from ._array import Array, DeviceArray, NDArray, Shape
from ._client import Client, Device, Info
from ._job import Job
from ._memory import Memory
from ._named import Named
from ._ops import Axes, Operand
from ._receipt import OpReceipt, Receipt
from ._usage import PublishedBuffer, RunningJob, SessionInfo, TracedJob, Usage, User
from .errors import (ArgumentError, BusyError, CancelledError, ConnectError, DeadlineError, DtypeError, Error,
                     InterruptedJobError, LostError, OutOfMemoryError, QuotaError, ShapeError, StateError, TimedOutError)

__all__ = [
    "connect", "default_client", "empty", "zeros", "asarray", "device_array", "memory", "owns", "matmul", "gemm",
    "publish", "attach", "unpublish", "buffers", "job", "receipt", "ping", "info", "users", "sessions", "trace",
    "Client", "Job", "DeviceArray", "Receipt", "OpReceipt", "Info", "Device", "User", "SessionInfo", "TracedJob", "Usage",
    "RunningJob", "PublishedBuffer", "Error", "ArgumentError", "BusyError", "CancelledError", "ConnectError", "DeadlineError", "DtypeError",
    "InterruptedJobError", "LostError", "OutOfMemoryError", "QuotaError", "ShapeError", "StateError", "TimedOutError",
]

# Made by scripts/gen-ops: names of described ops
__all__ += ["softmax", "transpose", "add", "copy", "reduce", "multiply", "layer_norm", "gather", "rms_norm", "subtract", "unary", "attention", "arg_reduce", "top_k", "search", "cholesky", "triangular_solve", "lu"]
# End of names of described ops
__all__ += _named.NAMES

connect = Client

if TYPE_CHECKING:
    __version__: str
else:
    def __getattr__(name: str) -> str:
        """
        To find out which version was installed takes longer than all else that an import does here. linalg needs more of
        NumPy than others do.
        """
        if name == "linalg":
            return importlib.import_module("kops.linalg")
        if name != "__version__":
            raise AttributeError(f"module 'kops' has no attribute {name!r}")
        globals()["__version__"] = _library.version()
        return globals()["__version__"]


def __dir__() -> list[str]:
    return [*__all__, "errors", "linalg", "__doc__", "__name__", "__version__"]


_default: Client | None = None
_default_lock = threading.Lock()


class _Default(Client):
    def close(self) -> None:
        global _default
        if _default is self:
            _default = None
        super().close()


def default_client() -> Client:
    """The client of this module's functions. A child of fork() gets one of its own. After its close() there is another."""
    client = _default
    return client if client is not None else _connect_default()


def _connect_default() -> Client:
    global _default
    with _default_lock:
        if _default is None:
            _default = _Default()
        return _default


def _forget_default() -> None:
    global _default, _default_lock
    _default = None
    _default_lock = threading.Lock()


_session.in_child.append(_forget_default)


def empty(shape: Shape, dtype: DTypeLike = np.float32) -> NDArray:
    """A NumPy array in shared memory, with any content."""
    return default_client().empty(shape, dtype)


def zeros(shape: Shape, dtype: DTypeLike = np.float32) -> NDArray:
    return default_client().zeros(shape, dtype)


def asarray(value: ArrayLike, dtype: DTypeLike | None = None) -> NDArray:
    """value itself if it is in shared memory of kops and of this dtype, else a copy there."""
    return default_client().asarray(value, dtype)


def device_array(shape: Shape, dtype: DTypeLike = np.float32, device: str | None = None) -> DeviceArray:
    """Zeros in a device's memory, the daemon's first device by default."""
    return default_client().device_array(shape, dtype, device)


def memory() -> Memory:
    """with kops.memory(): arrays that NumPy makes in the block, in this thread, are in shared memory."""
    return default_client().memory()


def owns(x: object) -> bool:
    """Whether ops use x where it is, without a copy."""
    return default_client().owns(x)


def publish(x: Operand, name: str, *, device: str | None = None, everybody: bool = False, group: int | str | None = None,
            keep: bool = False) -> Array:
    """Lets other processes attach the array by this name; see Client.publish()."""
    return default_client().publish(x, name, device=device, everybody=everybody, group=group, keep=keep)


def attach(name: str, user: int | str | None = None) -> Array:
    """The array that a user, by default this one, has published; see Client.attach()."""
    return default_client().attach(name, user)


def unpublish(name: str, user: int | str | None = None) -> None:
    """Ends a name; see Client.unpublish()."""
    default_client().unpublish(name, user)


def buffers() -> list[PublishedBuffer]:
    """What this user may attach; see Client.buffers()."""
    return default_client().buffers()


def matmul(a: Operand, b: Operand, out: Array | None = None, *, bias: Operand | None = None, activation: str = "none",
           conj_a: bool = False, conj_b: bool = False, precision: str = "f32", kernel: str | None = None) -> Any:
    """activation(a @ b + bias), with shapes as for numpy.matmul.

    bias: is broadcast to the result, as by NumPy
    activation: none, relu, gelu, gelu_tanh or silu
    conj_a, conj_b: multiply by the complex conjugate of a, of b
    """
    client = _default or _connect_default()  # not its matmul(), for speed
    key = (_ops.matmul, id(a), id(b), id(bias), id(out), bool(conj_a), bool(conj_b), precision, activation, kernel)
    return client._op(key, (a, b, bias), out)


def gemm(alpha: complex, a: Operand, b: Operand, beta: complex, c: Array, *, bias: Operand | None = None,
         activation: str = "none", conj_a: bool = False, conj_b: bool = False, precision: str = "f32",
         kernel: str | None = None) -> Any:
    """c = activation(alpha * a @ b + beta * c + bias); returns c. With beta == 0, c is not read.

    alpha, beta: complex numbers if the arrays are of complex numbers
    bias, activation, conj_a, conj_b: as for matmul()
    """
    return default_client().gemm(alpha, a, b, beta, c, bias=bias, activation=activation, conj_a=conj_a, conj_b=conj_b,
                                 precision=precision, kernel=kernel)


class _OfDefault(Named):
    def unary(self, *args: Any, **attributes: Any) -> Any:
        return default_client().unary(*args, **attributes)

    def reduce(self, *args: Any, **attributes: Any) -> Any:
        return default_client().reduce(*args, **attributes)

    def arg_reduce(self, *args: Any, **attributes: Any) -> Any:
        return default_client().arg_reduce(*args, **attributes)

    def top_k(self, *args: Any, **attributes: Any) -> Any:
        return default_client().top_k(*args, **attributes)


_of_default = _OfDefault()
relu, gelu, gelu_tanh, silu = _of_default.relu, _of_default.gelu, _of_default.gelu_tanh, _of_default.silu
sigmoid, tanh, exp, log, sqrt = _of_default.sigmoid, _of_default.tanh, _of_default.exp, _of_default.log, _of_default.sqrt
abs, negative, clip = _of_default.abs, _of_default.negative, _of_default.clip
sum, prod, mean, max, min = _of_default.sum, _of_default.prod, _of_default.mean, _of_default.max, _of_default.min
argmax, argmin, topk = _of_default.argmax, _of_default.argmin, _of_default.topk


# Made by scripts/gen-ops: described ops
def softmax(x: Operand, axis: int = -1, *, scale: float = 1.0, log: bool = False, mask: Operand | None = None,
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
    return default_client().softmax(x, axis, scale=scale, log=log, mask=mask, out=out, kernel=kernel)


def transpose(x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y[…, j, i] = x[…, i, j], bit for bit.

    x: 2 to 4 axes
    The result: x's shape with the last two extents exchanged; numbers take the first array's type.
    No op needs it for an operand: ops take transposed views, and copy nothing.
    """
    return default_client().transpose(x, out, kernel=kernel)


def add(a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y = a + b, rounded once.

    a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
    b: as a
    The result: 1 to 4 axes; numbers take the first array's type.
    out may be a or b, where that is not repeated.
    """
    return default_client().add(a, b, out, kernel=kernel)


def copy(x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y = x, bit for bit.

    x: 1 to 4 axes
    The result: x's shape; numbers take the first array's type.
    x and y may be in memory of different kinds, such as shared memory and a device's.
    """
    return default_client().copy(x, out, kernel=kernel)


def reduce(x: Operand, kind: str = "sum", axis: Axes = -1, *, keepdims: bool = False, out: Array | None = None,
           kernel: str | None = None) -> Any:
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
    return default_client().reduce(x, kind, axis, keepdims=keepdims, out=out, kernel=kernel)


def multiply(a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y = a * b, element by element, rounded once.

    a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
    b: as a
    The result: 1 to 4 axes; numbers take the first array's type.
    out may be a or b, where that is not repeated.
    """
    return default_client().multiply(a, b, out, kernel=kernel)


def layer_norm(x: Operand, weight: Operand | None = None, bias: Operand | None = None, out: Array | None = None, *,
               residual: Operand | None = None, sum: Array | None = None, axis: int = -1, eps: float = 1e-05,
               kernel: str | None = None) -> Any:
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
    return default_client().layer_norm(x, weight, bias, out, residual=residual, sum=sum, axis=axis, eps=eps, kernel=kernel)


def gather(x: Operand, indices: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y[i, :] = x[indices[i], :], bit for bit.

    x: [rows, columns]; f32, f64, f16, bf16, i32, c64 or c128
    indices: 1 or 2 axes, of rows of x from 0 on; i32
    The result: the indices' axes, then x's columns; numbers take the first array's type.
    An index that is negative, or not below the number of rows, gives a row of zeros.
    """
    return default_client().gather(x, indices, out, kernel=kernel)


def rms_norm(x: Operand, weight: Operand | None = None, bias: Operand | None = None, out: Array | None = None, *,
             residual: Operand | None = None, sum: Array | None = None, axis: int = -1, eps: float = 1e-05,
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
    return default_client().rms_norm(x, weight, bias, out, residual=residual, sum=sum, axis=axis, eps=eps, kernel=kernel)


def subtract(a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
    """y = a - b, element by element, rounded once.

    a: 1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
    b: as a
    The result: 1 to 4 axes; numbers take the first array's type.
    out may be a or b, where that is not repeated.
    """
    return default_client().subtract(a, b, out, kernel=kernel)


def unary(x: Operand, out: Array | None = None, *, function: str = "none", scale: float = 1.0, low: float = -inf,
          high: float = inf, kernel: str | None = None) -> Any:
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
    return default_client().unary(x, out, function=function, scale=scale, low=low, high=high, kernel=kernel)


def attention(q: Operand, k: Operand, v: Operand, mask: Operand | None = None, lengths: Operand | None = None,
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
    return default_client().attention(q, k, v, mask, lengths, out, lse=lse, scale=scale, causal=causal, window=window, kernel=kernel)


def arg_reduce(x: Operand, kind: str = "max", axis: Axes = -1, *, keepdims: bool = False, out: Array | None = None,
               kernel: str | None = None) -> Any:
    """y = the index of the largest or smallest element of x along its last axis.

    x: 1 to 4 axes; the last one has an element; f32, f64, f16 or bf16
    axis: which axis of x is taken for the last, or several; None: all
    keepdims: the result has them too, with one index
    kind: what to look for in each row; max or min
    The result: x's shape without the last axis, or with 1 there; numbers take the first array's type.
    Of equal elements it is the first. The first NaN counts as the largest, and as the smallest.
    """
    return default_client().arg_reduce(x, kind, axis, keepdims=keepdims, out=out, kernel=kernel)


def top_k(x: Operand, k: int = 1, axis: int = -1, *, kind: str = "largest", order: str = "value",
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
    return default_client().top_k(x, k, axis, kind=kind, order=order, out=out, kernel=kernel)


def search(queries: Operand, base: Operand, k: int = 10, *, metric: str = "ip", filter: Operand | None = None,
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
    return default_client().search(queries, base, k, metric=metric, filter=filter, out=out, kernel=kernel)


def cholesky(a: Operand, out: tuple[Array, Array] | None = None, *, upper: bool = False, keep: bool = False,
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
    return default_client().cholesky(a, out, upper=upper, keep=keep, kernel=kernel)


def triangular_solve(a: Operand, b: Operand, out: Array | None = None, *, upper: bool = False, unit: bool = False,
                     conj_a: bool = False, right: bool = False, kernel: str | None = None) -> Any:
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
    return default_client().triangular_solve(a, b, out, upper=upper, unit=unit, conj_a=conj_a, right=right, kernel=kernel)


def lu(a: Operand, out: tuple[Array, Array, Array] | None = None, *, kernel: str | None = None) -> Any:
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
    return default_client().lu(a, out, kernel=kernel)


# End of described ops


def job(*, device: str | None = None, queue: int = 0, priority: str = "normal", deadline: float | None = None,
        timed: bool = False) -> Job:
    """Several ops that are sent together; see Job."""
    return default_client().job(device=device, queue=queue, priority=priority, deadline=deadline, timed=timed)


def receipt() -> Receipt | None:
    """Of the last op that a function of this module ran."""
    return default_client().receipt


def ping() -> None:
    """Returns when every device passed its last self-check; else Error."""
    default_client().ping()


def info() -> Info:
    """The daemon and its devices."""
    return default_client().info()


def users() -> list[User]:
    """Who uses the daemon; see Client.users()."""
    return default_client().users()


def sessions() -> list[SessionInfo]:
    """The daemon's sessions; see Client.sessions()."""
    return default_client().sessions()


def trace(limit: int = 0, *, after: int = 0) -> list[TracedJob]:
    """The latest jobs; see Client.trace()."""
    return default_client().trace(limit, after=after)
