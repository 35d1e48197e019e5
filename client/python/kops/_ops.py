"""The ops on arrays: what fits together, the shape of the result, and the ops of kops.h that make it.

Each function checks its arguments and returns the result's array and a list of Op, which somebody else runs. A desk
(_desk.py) puts operands into kops memory and makes the arrays of results.
"""
from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike

from . import _library
from ._array import Array, DeviceArray, NDArray, dtype_code, dtype_of, elements, native
from ._library import RANK_MAX, View, lib
from ._session import Session
from .errors import error

if TYPE_CHECKING:
    from ._desk import Desk

Operand = Union[ArrayLike, DeviceArray]
Axes = Union[int, "tuple[int, ...]", None]  # None: all


Attributes = tuple[tuple[str, Any], ...]
Result = Union[Array, "tuple[Array, ...]"]  # several, of ops that have more than one
Function = Callable[..., "tuple[Result, list[Op]]"]  # desk, operands, out, parameters


ORDERED = ("arg_reduce",)  # whose result depends on the order of the elements that are reduced


class Op(NamedTuple):
    name: str
    arrays: tuple[NDArray, ...]  # the last ones are the outputs
    params: tuple[Attributes, bytes | None]  # and the kernel
    names: tuple[str, ...]  # of the arrays
    n_outputs: int = 1


@functools.lru_cache(maxsize=256)
def _attributes(values: Attributes) -> ctypes.Array[_library.NamedAttribute]:
    """For libkops: words, numbers and truth values by the attributes' names."""
    rows = [_library.NamedAttribute(name.encode(), 0, value.encode()) if isinstance(value, str)
            else _library.NamedAttribute(name.encode(), float(value), None) for name, value in values]
    return (_library.NamedAttribute * len(rows))(*rows)


@functools.cache  # without an end: copies of the rows point to these names
def _names(names: tuple[str, ...]) -> ctypes.Array[_library.NamedOperand]:
    return (_library.NamedOperand * len(names))(*(_library.NamedOperand(name.encode()) for name in names))


def _operands(names: tuple[str, ...], views: Sequence[View]) -> ctypes.Array[_library.NamedOperand]:
    named = _names(names)
    rows = type(named).from_buffer_copy(named)
    for row, view in zip(rows, views):
        row.view = view
    return rows


def append(job: int, op: Op, v: Sequence[View]) -> int:
    """Adds it, with the views of its arrays, to a kops_job: the status."""
    attributes, kernel = op.params
    return int(lib.kops_job_op(job, op.name.encode(), _operands(op.names, v), len(v), _attributes(attributes),
                               len(attributes), kernel))


# ---- Operands


def _one_dtype(**operands: NDArray) -> np.dtype[Any]:
    dtypes = {native(x.dtype) for x in operands.values()}
    if len(dtypes) > 1:
        which = ", ".join(f"{name} is {x.dtype}" for name, x in operands.items())
        raise error("DTYPE", f"{which}: the operands of an op have one type; convert with astype()")
    return dtypes.pop()


def _output(desk: Desk, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any], like: Sequence[object],
            is_read: bool = False, name: str = "out") -> tuple[Array, NDArray]:
    """The result, and what stands for it in ops."""
    if out is None:
        out = desk.make(shape, dtype, like)
    elif not isinstance(out, (np.ndarray, DeviceArray)):
        raise error("INVALID", f"{name} is a {type(out).__name__}; it must be an array")
    if out.shape != shape:
        raise error("SHAPE", f"{name} has shape {out.shape}, but the result has {shape}")
    if native(out.dtype) != dtype:
        raise error("DTYPE", f"{name} is {out.dtype}, but the result is {dtype}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise error("READONLY", f"{name} is read-only: make a writable array")
    return out, desk.output(out, is_read)


def _check_rank(x: NDArray, name: str, least: int = 1) -> None:
    if not least <= x.ndim <= RANK_MAX:
        raise error("SHAPE", f"{name} has shape {x.shape}; kops takes {least} to {RANK_MAX} axes here: reshape it")


def _axis(x: NDArray, axis: int) -> int:
    axis = operator.index(axis)
    if not -x.ndim <= axis < x.ndim:
        raise error("SHAPE", f"there is no axis {axis} in an array of shape {x.shape}")
    return axis % x.ndim


def _with_last(x: NDArray, axis: int) -> NDArray:
    return x if axis == x.ndim - 1 else np.moveaxis(x, axis, -1)


def _of_rank(x: NDArray, rank: int) -> NDArray:
    """With as many axes, the first ones of one index, as broadcasting has it."""
    return x[(None,) * (rank - x.ndim)] if x.ndim < rank else x


def _axes(x: NDArray, axis: Axes) -> tuple[int, ...]:
    """In rising order."""
    if axis is None:
        return tuple(range(x.ndim))
    named = axis if isinstance(axis, tuple) else (axis,)
    if not named:
        raise error("SHAPE", "axis is (), which has no axis to reduce: name one, or None for all")
    axes = sorted(_axis(x, a) for a in named)
    if len(set(axes)) < len(axes):
        raise error("SHAPE", f"axis {axis} has an axis of an array of shape {x.shape} twice")
    return tuple(axes)


def _joined(desk: Desk, x: NDArray, axes: tuple[int, ...], name: str, op: str) -> tuple[NDArray, list[Op]]:
    """x with these axes made one, its last, and the copy that it may take."""
    others = [d for d in range(x.ndim) if d not in axes]
    order = axes if op in ORDERED else sorted(axes, key=lambda d: -abs(x.strides[d]))
    x = x.transpose(*others, *order)
    n, copies = len(others), []
    joined = _fold(x.shape[n:], [(s,) for s in x.strides[n:]])
    if len(joined) > 1 and x.size:
        _check_rank(x, name)
        place = desk.temporary(x.shape, x.dtype, (x,))
        copies = [Op("copy", (x, place), ((), None), ("x", "y"))]
        x = place
    stride = x.strides[n:][-1] if copies else joined[0][1][0] if joined and x.size else 0
    x = as_strided(x, (*x.shape[:n], int(np.prod(x.shape[n:]))), (*x.strides[:n], stride))
    _check_rank(x, name)
    return x, copies


def choice(words: Collection[str], value: str, what: str) -> None:
    if value not in words:
        raise error("INVALID", f"there is no {what} {value!r}: it is one of {', '.join(words)}")


def check_attributes(op: str, attributes: Attributes) -> None:
    for name, value in attributes:
        if (op, name) in CHOICES:
            choice(CHOICES[op, name], value, name)


def _kernel(kernel: str | None) -> bytes | None:
    return _library.name(kernel, "kernel")


# ---- Products


def matmul(desk: Desk, a: Operand, b: Operand, bias: Operand | None, out: Array | None, conj_a: bool, conj_b: bool,
           precision: str, activation: str, kernel: str | None) -> tuple[Array, list[Op]]:
    return _product(desk, a, b, bias, out, (1.0, 0.0, precision, activation, conj_a, conj_b), kernel)


def gemm(desk: Desk, a: Operand, b: Operand, bias: Operand | None, c: Array, alpha: complex, beta: complex, conj_a: bool,
         conj_b: bool, precision: str, activation: str, kernel: str | None) -> tuple[Array, list[Op]]:
    if not isinstance(c, (np.ndarray, DeviceArray)):
        raise error("INVALID", f"c is a {type(c).__name__}; it must be an array, which gets the result")
    return _product(desk, a, b, bias, c, (alpha, beta, precision, activation, conj_a, conj_b), kernel)


def _product(desk: Desk, a: Operand, b: Operand, bias: Operand | None, out: Array | None,
             values: tuple[complex, complex, str, str, bool, bool], kernel: str | None) -> tuple[Array, list[Op]]:
    """Shapes as for numpy.matmul: a vector is a row on the left and a column on the right, leading axes are batches.
    values: alpha, beta, precision, activation, conj_a, conj_b."""
    alpha, beta, *others = values
    attributes: Attributes = (
        ("alpha", alpha.real), ("beta", beta.real), *zip(("precision", "activation", "conj_a", "conj_b"), others),
        ("alpha_imag", alpha.imag), ("beta_imag", beta.imag))
    check_attributes("gemm", attributes)
    params = attributes, _kernel(kernel)
    x, y = desk.operand(a), desk.operand(b)
    added = {} if bias is None else {"bias": _bias(desk, bias, x.dtype)}
    dtype = _one_dtype(a=x, b=y, **added)
    shape = _shape_of_product(x, y)
    added = {name: _repeated(z, shape) for name, z in added.items()}
    result, added["c"] = _output(desk, out, shape, dtype, (a, b, bias), beta != 0)
    arrays = {"a": x if x.ndim > 1 else x[None, :], "b": y if y.ndim > 1 else y[:, None],
              **{name: _with_axes_of_vectors(z, x, y) for name, z in added.items()}}
    ops = [Op("gemm", operands, params, (*arrays,)) for operands in _batches(*arrays.values())] if result.size else []
    return result, ops


def _bias(desk: Desk, bias: Operand, dtype: np.dtype[Any]) -> NDArray:
    """A number of Python takes the product's type."""
    return desk.operand(np.asarray(bias, dtype) if isinstance(bias, (int, float)) else bias)


def _shape_of_product(x: NDArray, y: NDArray) -> tuple[int, ...]:
    if x.ndim == 0 or y.ndim == 0:
        raise error("SHAPE", f"a has shape {x.shape}, b has {y.shape}: a product needs an axis of both; "
                             "multiply by a number with gemm's alpha")
    rows = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != rows:
        raise error("SHAPE", f"a has shape {x.shape}, b has {y.shape}: the last axis of a ({x.shape[-1]}) must be as "
                             f"long as the {'last but one' if y.ndim > 1 else 'only'} axis of b ({rows})")
    try:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise error("SHAPE", f"a has shape {x.shape}, b has {y.shape}: their batches, {x.shape[:-2]} and "
                             f"{y.shape[:-2]}, cannot be broadcast together") from None
    return batch + x.shape[-2:-1] + y.shape[-1:] * (y.ndim > 1)


def _repeated(bias: NDArray, shape: tuple[int, ...]) -> NDArray:
    try:
        return np.broadcast_to(bias, shape)
    except ValueError:
        raise error("SHAPE", f"bias has shape {bias.shape}, which cannot be broadcast to the result's {shape}") from None


def _with_axes_of_vectors(z: NDArray, x: NDArray, y: NDArray) -> NDArray:
    """An axis of one index where the product of x and y has none, because they are vectors."""
    if y.ndim == 1:
        z = z[..., None]
    return z[..., None, :] if x.ndim == 1 else z


def _batches(*operands: NDArray) -> Iterator[tuple[NDArray, ...]]:
    """Products with one axis of batches at most, which is what kops takes. The last operand has all axes."""
    batch = operands[-1].shape[:-2]
    if all(x.ndim <= len(batch) + 2 <= 3 for x in operands):
        yield operands
        return
    arrays = [np.broadcast_to(x, batch + x.shape[-2:]) for x in operands[:-1]] + [operands[-1]]
    axes = _fold(batch, list(zip(*(x.strides[:-2] for x in arrays))))
    extents = tuple(n for n, _ in axes)
    arrays = [as_strided(x, extents + x.shape[-2:], tuple(s[i] for _, s in axes) + x.strides[-2:])
              for i, x in enumerate(arrays)]
    for index in np.ndindex(extents[:-1]):
        yield (*(_once(x[index]) for x in arrays[:-1]), arrays[-1][index])


def _fold(extents: tuple[int, ...], strides: list[tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """(extent, strides in each array) of the axes, neighbours that continue each other in all of them made one."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for n, s in zip(extents, strides):
        if n == 1:
            continue
        if axes and all(outer == n * inner for outer, inner in zip(axes[-1][1], s)):
            axes[-1] = (axes[-1][0] * n, s)
        else:
            axes.append((n, s))
    return axes


def _once(x: NDArray) -> NDArray:
    """One matrix that serves every batch is given once."""
    once: NDArray = x[0] if x.ndim == 3 and x.strides[0] == 0 else x
    return once


# ---- Any op, by its description


def _indices(x: int | Sequence[Any]) -> NDArray:
    """What int32 cannot hold is out of range, whatever x is."""
    y = elements(x)
    if y.size and y.dtype.kind not in "iu":
        raise error("DTYPE", f"indices are {y.dtype}; they must be integers")
    return np.where((y >= 0) & (y < 2 ** 31), y, -1).astype(np.int32)


def _operand_or_number(desk: Desk, x: Operand, other: Operand, is_index: bool) -> NDArray:
    """A number of Python takes the type of the array beside it, as in NumPy; indices of Python are int32."""
    if is_index and isinstance(x, (int, list, tuple)):
        x = _indices(x)
    elif isinstance(x, (int, float)) and not isinstance(other, (int, float)):
        x = np.asarray(x, desk.operand(other).dtype)
    return desk.operand(x)


def _shape_of(dtype: int, shape: tuple[int, ...]) -> View:
    view = View(None, 0, dtype, len(shape))
    view.shape[:len(shape)] = shape
    return view


def _given(out: Any, names: tuple[str, ...]) -> tuple[Array | None, ...]:
    """The arrays for results of these names."""
    if out is None or len(names) == 1:
        return (out,) * len(names)
    if not isinstance(out, tuple) or len(out) != len(names):
        raise error("INVALID", f"out is a {type(out).__name__}; it must be a tuple of {len(names)} arrays, {', '.join(names)}")
    return out


def _described(desk: Desk, op: str, operands: dict[str, Operand | None], attributes: Attributes, output: str,
               out: Result | None, kernel: str | None, along: tuple[Any, bool | None] | None = None,
               also: dict[str, Array | None] | None = None, beside: tuple[str, ...] = ()) -> tuple[Result, list[Op]]:
    """The result is what libkops says of it. A number of Python takes the type of the first array. along: the axis of the
    first operand that takes the place of its last, and whether the result has one index there; None: the whole axis. Unless
    it is None, there may be several axes. also: arrays for further outputs. beside: the outputs that are results beside the
    first."""
    check_attributes(op, attributes)
    given = {name: x for name, x in operands.items() if x is not None}
    first = next((x for x in given.values() if not isinstance(x, (int, float))), None)
    arrays = {name: _operand_or_number(desk, x, 0 if first is None else first, (op, name) in INDICES)
              for name, x in given.items()}
    whole = {name: x if x.ndim else x[None] for name, x in arrays.items()}
    axes: tuple[int, ...] = ()
    ops: list[Op] = []
    if along:
        of_rows, x = next(iter(arrays.items()))
        axes = _axes(x, along[0]) if along[1] is not None else (_axis(x, along[0]),)
        if along[1] is not None:
            whole[of_rows], ops = _joined(desk, x, axes, of_rows, op)
        for name in whole:  # an extra one has the axes of x, or some of the last ones
            if along[1] is None and axes[0] != x.ndim - 1 and (name == of_rows or (op, name) in EXTRA):
                whole[name] = _with_last(_of_rank(whole[name], x.ndim), axes[0])
    for name, x in whole.items():
        _check_rank(x, name)
    described = (*whole,), tuple((dtype_code(x.dtype), x.shape) for x in whole.values()), attributes

    def result_of(name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        dtype, shape = _result(op, *described, name)
        if not dtype:  # there is no such output here, which kopsd says better
            dtype, shape = _result(op, *described, output)
        shape = shape if any(x.ndim for x in arrays.values()) else ()
        if along:
            shape = _with_axes(shape, axes, along[1], next(iter(arrays.values())).ndim)
        return shape, dtype_of(dtype, whole.values())

    results: list[Array] = []
    outputs: dict[str, NDArray] = {}
    for name, place in zip((output, *beside), _given(out, (output, *beside))):
        result, y = _output(desk, place, *result_of(name), tuple(given.values()))
        if along and along[1] is None:
            y = _with_last(y, axes[0])
        elif along:
            y = (y.squeeze(axes) if along[1] else y)[..., None]
        outputs[name] = y if y.ndim else y[None]
        results.append(result)
    for name, further in (also or {}).items():
        if further is not None:
            _, z = _output(desk, further, *result_of(name), (), name=name)
            outputs[name] = _with_last(z, axes[0]) if along else z
    return tuple(results) if beside else results[0], [
        *ops, Op(op, (*whole.values(), *outputs.values()), (attributes, _kernel(kernel)), (*whole, *outputs),
                 len(outputs))] if outputs[output].size else []


@functools.lru_cache(maxsize=256)
def _result(op: str, names: tuple[str, ...], shapes: tuple[tuple[int, tuple[int, ...]], ...], attributes: Attributes,
            output: str) -> tuple[int, tuple[int, ...]]:
    """Its type and shape, from those of the operands."""
    result, why = View(), ctypes.create_string_buffer(512)
    status = lib.kops_op_result(op.encode(), _operands(names, [_shape_of(*x) for x in shapes]), len(names),
                                _attributes(attributes), len(attributes), output.encode(), result, why, len(why))
    if status < 0:
        raise Session.explained(status, _library.text(why.value), None)
    return result.dtype, tuple(result.shape[:result.rank])


def _with_axes(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool | None, rank: int) -> tuple[int, ...]:
    """The shape of the result, which has those axes of the first operand, of that rank, made one, its last."""
    if keepdims is None:
        return shape[:axes[0]] + shape[rank - 1:] + shape[axes[0]:rank - 1]
    others = iter(shape[:rank - len(axes)])
    return tuple(1 if d in axes else next(others) for d in range(rank) if keepdims or d not in axes)


# Made by scripts/gen-ops: described ops


def softmax(desk: Desk, x: Operand, mask: Operand | None, out: Array | None, axis: int, scale: float, log: bool,
            kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "softmax", {"x": x, "mask": mask}, (("scale", scale), ("log", log),), "y", out, kernel,
                      (axis, None))


def transpose(desk: Desk, x: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "transpose", {"x": x}, (), "y", out, kernel)


def add(desk: Desk, a: Operand, b: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "add", {"a": a, "b": b}, (), "y", out, kernel)


def copy(desk: Desk, x: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "copy", {"x": x}, (), "y", out, kernel)


def reduce(desk: Desk, x: Operand, out: Array | None, axis: Axes, keepdims: bool, kind: str,
           kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "reduce", {"x": x}, (("kind", kind),), "y", out, kernel, (axis, keepdims))


def multiply(desk: Desk, a: Operand, b: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "multiply", {"a": a, "b": b}, (), "y", out, kernel)


def layer_norm(desk: Desk, x: Operand, weight: Operand | None, bias: Operand | None, residual: Operand | None,
               sum: Array | None, out: Array | None, axis: int, eps: float,
               kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "layer_norm", {"x": x, "weight": weight, "bias": bias, "residual": residual},
                      (("eps", eps),), "y", out, kernel, (axis, None), also={"sum": sum})


def gather(desk: Desk, x: Operand, indices: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "gather", {"x": x, "indices": indices}, (), "y", out, kernel)


def rms_norm(desk: Desk, x: Operand, weight: Operand | None, bias: Operand | None, residual: Operand | None,
             sum: Array | None, out: Array | None, axis: int, eps: float,
             kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "rms_norm", {"x": x, "weight": weight, "bias": bias, "residual": residual}, (("eps", eps),),
                      "y", out, kernel, (axis, None), also={"sum": sum})


def subtract(desk: Desk, a: Operand, b: Operand, out: Array | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "subtract", {"a": a, "b": b}, (), "y", out, kernel)


def unary(desk: Desk, x: Operand, out: Array | None, function: str, scale: float, low: float, high: float,
          kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "unary", {"x": x},
                      (("function", function), ("scale", scale), ("low", low), ("high", high),), "y", out, kernel)


def attention(desk: Desk, q: Operand, k: Operand, v: Operand, mask: Operand | None, lengths: Operand | None,
              lse: Array | None, out: Array | None, scale: float, causal: str, window: int,
              kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "attention", {"q": q, "k": k, "v": v, "mask": mask, "lengths": lengths},
                      (("scale", scale), ("causal", causal), ("window", window),), "o", out, kernel, also={"lse": lse})


def arg_reduce(desk: Desk, x: Operand, out: Array | None, axis: Axes, keepdims: bool, kind: str,
               kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "arg_reduce", {"x": x}, (("kind", kind),), "y", out, kernel, (axis, keepdims))


def top_k(desk: Desk, x: Operand, out: tuple[Array, Array] | None, axis: int, k: int, kind: str, order: str,
          kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "top_k", {"x": x}, (("k", k), ("kind", kind), ("order", order),), "values", out, kernel,
                      (axis, None), beside=("indices",))


def search(desk: Desk, queries: Operand, base: Operand, filter: Operand | None, out: tuple[Array, Array] | None, k: int,
           metric: str, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "search", {"queries": queries, "base": base, "filter": filter},
                      (("k", k), ("metric", metric),), "values", out, kernel, beside=("indices",))


def cholesky(desk: Desk, a: Operand, out: tuple[Array, Array] | None, upper: bool, keep: bool,
             kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "cholesky", {"a": a}, (("upper", upper), ("keep", keep),), "factor", out, kernel,
                      beside=("info",))


def triangular_solve(desk: Desk, a: Operand, b: Operand, out: Array | None, upper: bool, unit: bool, conj_a: bool,
                     right: bool, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "triangular_solve", {"a": a, "b": b},
                      (("upper", upper), ("unit", unit), ("conj_a", conj_a), ("right", right),), "x", out, kernel)


def lu(desk: Desk, a: Operand, out: tuple[Array, Array, Array] | None, kernel: str | None) -> tuple[Result, list[Op]]:
    return _described(desk, "lu", {"a": a}, (), "lu", out, kernel, beside=("pivots", "info",))


CHOICES: dict[tuple[str, str], tuple[str, ...]] = {("gemm", "precision"): ("f32", "ieee", "tf32", "bf16"),
                                                   ("gemm", "activation"): ("none", "relu", "gelu", "gelu_tanh", "silu"),
                                                   ("reduce", "kind"): ("sum", "max", "mean", "min", "prod"),
                                                   ("unary", "function"): ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs"),
                                                   ("attention", "causal"): ("none", "top_left", "bottom_right"),
                                                   ("arg_reduce", "kind"): ("max", "min"),
                                                   ("top_k", "kind"): ("largest", "smallest"),
                                                   ("top_k", "order"): ("value", "index"),
                                                   ("search", "metric"): ("ip", "l2", "cosine")}
INDICES: frozenset[tuple[str, str]] = frozenset([("gather", "indices"), ("attention", "lengths")])
EXTRA: frozenset[tuple[str, str]] = frozenset([("softmax", "mask"), ("layer_norm", "residual"),
                                               ("rms_norm", "residual"), ("search", "filter")])


# End of described ops
