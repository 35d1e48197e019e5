"""Dask arrays whose chunks kopsd computes: each worker's chunks the kopsd of its host.

    import dask.array as da
    import kops.dask
    c = kops.dask.matmul(a, b)      # a Dask array, as a @ b is
    p = kops.dask.softmax(c)

Dask's scheduler decides where each chunk is computed. Chunks are NumPy arrays, so Dask moves, spills and recomputes them
as ever. docs/scale.md of the kops repository has the rest.
"""
from __future__ import annotations

import itertools
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes

from . import _chunks, _library, _ops
from ._array import NDArray, check_kind, dtype_code, native
from .errors import error

__all__ = ["matmul", "softmax", "transpose", "calls"]

MEMORY = "4 GiB"
BATCH_MAX = _library.RANK_MAX - 2


def matmul(a: Any, b: Any, *, bias: Any = None, activation: str = "none", precision: str = "f32") -> da.Array:
    """activation(a @ b + bias), of matrices or batches of them. Each chunk of the result is a chain of tasks, one for each
    chunk along the shared axis, so a worker holds no more than a task's operands for it. The last task adds the bias."""
    _ops.check_attributes("gemm", (("precision", precision), ("activation", activation)))
    arrays = [_array(a, "a"), _array(b, "b")] + ([] if bias is None else [_array(bias, "bias", 1)])
    batch = tuple(f"batch{i}" for i in range(max(x.ndim for x in arrays[:2]) - 2))
    axes = [(*batch, "m", "k"), (*batch, "k", "n"), (*batch, "m", "n")]
    _check_operands(*arrays)
    axes_of = [names[len(names) - x.ndim:] for names, x in zip(axes, arrays)]
    try:
        chunks, arrays = da.core.unify_chunks(*itertools.chain(*zip(arrays, axes_of)), warn=False)
    except ValueError as e:
        raise error("SHAPE", str(e)) from None
    for x, names in zip(arrays, axes_of):
        _check_blocks(x, names, chunks)
    name = f"kops-matmul-{tokenize(*arrays, activation, precision)}"
    chunks_of_result = tuple(chunks[axis] for axis in axes[-1])
    graph: dict[Any, Any] = {}
    for index in itertools.product(*(range(len(c)) for c in chunks_of_result)):
        _add_chain(graph, name, index, arrays, precision, activation)
    return da.Array(HighLevelGraph.from_collections(name, graph, dependencies=arrays), name, chunks_of_result,
                    dtype=native(arrays[0].dtype))


def _check_operands(a: da.Array, b: da.Array, *bias: da.Array) -> None:
    if len({native(x.dtype) for x in (a, b, *bias)}) > 1:
        which = ", ".join(f"{name} is {x.dtype}" for name, x in zip(("a", "b", "bias"), (a, b, *bias)))
        raise error("DTYPE", f"{which}: the operands of a product have one type; convert with astype()")
    if a.shape[-1] != b.shape[-2] and not np.isnan(a.shape[-1] + b.shape[-2]):
        raise error("SHAPE", f"a has shape {a.shape}, b has {b.shape}: the last axis of a ({a.shape[-1]}) must be as long "
                             f"as the last but one axis of b ({b.shape[-2]})")
    extents = _extents_of_product(a, b)
    for x in bias:
        if x.ndim > len(extents) or not all(n in (1, m) or np.isnan(n + m) for n, m in zip(x.shape[::-1], extents)):
            raise error("SHAPE", f"bias has shape {x.shape}, which cannot be broadcast to the product of a, {a.shape}, and "
                                 f"b, {b.shape}")


def _extents_of_product(a: da.Array, b: da.Array) -> list[float]:
    """From the last axis on."""
    rows, columns = (*a.shape[:-1], 1), (*b.shape[:-2], 1, b.shape[-1])
    return [n if m == 1 else m for m, n in itertools.zip_longest(rows[::-1], columns[::-1], fillvalue=1)]


def _check_blocks(x: da.Array, axes: tuple[str, ...], chunks: dict[str, tuple[float, ...]]) -> None:
    """Dask cannot cut chunks of unknown size. Those of all operands belong together in their order, one for one."""
    for axis, extent, n in zip(axes, x.shape, x.numblocks):
        if np.isnan(sum(chunks[axis])) and n != len(chunks[axis]) and (extent != 1 or axis == "k"):
            raise error("SHAPE", f"an axis has {n} chunks in one operand and {len(chunks[axis])} in another, of unknown "
                                 "sizes: call compute_chunk_sizes() on both before")


def _add_chain(graph: dict[Any, Any], name: str, index: tuple[int, ...], arrays: list[da.Array], precision: str,
               activation: str) -> None:
    a, b, *bias = arrays
    *batch, m, n = index
    last = a.numblocks[-1] - 1
    so_far = None
    for k in range(last):
        key = (f"{name}-sum", *index, k)
        graph[key] = (_product, _block(a, (*batch, m, k)), _block(b, (*batch, k, n)), so_far, precision)
        so_far = key
    graph[(name, *index)] = (_product, _block(a, (*batch, m, last)), _block(b, (*batch, last, n)), so_far, precision,
                             _block(bias[0], index) if bias else None, activation)


def _block(x: da.Array, index: tuple[int, ...]) -> tuple[Any, ...]:
    """The key of the block at this index, where x may have fewer axes, or one block that serves all."""
    return (x.name, *(i if n > 1 else 0 for i, n in zip(index[len(index) - x.ndim:], x.numblocks)))


def softmax(x: Any, axis: int = -1, *, scale: float = 1.0, log: bool = False) -> da.Array:
    """softmax(scale * x) along an axis, or its logarithm. Chunks are first merged along that axis."""
    x = _array(x, "x", 1)
    if not -x.ndim <= axis < x.ndim:
        raise error("SHAPE", f"there is no axis {axis} in an array of shape {x.shape}")
    axis %= x.ndim
    return x.rechunk({axis: -1}).map_blocks(_softmax, axis, float(scale), bool(log), dtype=native(x.dtype),
                                            meta=x._meta.astype(native(x.dtype)),
                                            name=f"kops-softmax-{tokenize(x, axis, scale, log)}")


def transpose(x: Any) -> da.Array:
    """A copy of x with the last two axes exchanged, in each chunk's memory too. x.T is a view, and as good for a product."""
    x = _array(x, "x")
    axes = tuple(range(x.ndim))
    return da.blockwise(_transpose, (*axes[:-2], axes[-1], axes[-2]), x, axes, dtype=native(x.dtype),
                        meta=x._meta.astype(native(x.dtype)))


def calls() -> dict[str, int]:
    """Of this process so far: chunks computed by "kopsd" and by "numpy" in its place, and "copied_bytes" between ordinary
    and kops memory. A distributed.Client asks its workers: client.run(kops.dask.calls)."""
    return dict(_here().counts)


def _array(x: Any, name: str, least: int = 2) -> da.Array:
    if not isinstance(x, da.Array):
        check_kind(x)
    x = da.asarray(x)
    check_kind(x._meta)
    dtype_code(native(x.dtype))
    if not least <= x.ndim <= _library.RANK_MAX:
        raise error("SHAPE", f"{name} has shape {x.shape}; kops takes {least} to {_library.RANK_MAX} axes here: reshape it")
    return x


# ---- In the tasks


def _here() -> _chunks.Chunks:
    return _chunks.here(lambda: int(parse_bytes(dask.config.get("kops.memory", MEMORY))))


def _compute(op: _chunks.Op, operands: tuple[NDArray, ...]) -> NDArray:
    return _here().compute(op, *operands)


def _product(a: NDArray, b: NDArray, so_far: NDArray | None, precision: str, bias: NDArray | None = None,
             activation: str = "none") -> NDArray:
    return _compute(*_chunks.product(a, b, so_far, precision, bias, activation))


def _softmax(x: NDArray, axis: int, scale: float, log: bool) -> NDArray:
    return _compute(*_chunks.softmax(x, axis, scale, log))


def _transpose(x: NDArray) -> NDArray:
    return _compute(*_chunks.transpose(x))
