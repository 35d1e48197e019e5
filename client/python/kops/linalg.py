"""Functions of numpy.linalg that kopsd computes: by cholesky, lu and triangular_solve, for stacks of matrices.

They take what NumPy's take, and raise numpy.linalg.LinAlgError where NumPy's do. Integers become float64. float16 is refused.
"""
from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.linalg import LinAlgError

from . import default_client

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["LinAlgError", "cholesky", "det", "inv", "slogdet", "solve"]

_TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def _matrices(*arrays: ArrayLike) -> list[NDArray[Any]]:
    """As arrays of one of kopsd's types."""
    found = [np.asarray(x) for x in arrays]
    dtype = np.result_type(*found)
    if dtype.kind in "biu":
        dtype = np.dtype(np.float64)
    if dtype not in _TYPES:
        raise TypeError(f"array type {dtype} is unsupported in linalg")
    return [x.astype(dtype, copy=False) for x in found]


def _check_square(a: NDArray[Any]) -> None:
    if a.ndim < 2:
        raise LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")


def _stack(a: NDArray[Any]) -> NDArray[Any]:
    """All matrices along one axis: kopsd takes two axes of them, and NumPy any number."""
    return a.reshape(prod(a.shape[:-2]), *a.shape[-2:])


def _lu(a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of all matrices of a."""
    lu, pivots, info = default_client().lu(_stack(a))
    return np.asarray(lu), np.asarray(pivots), np.asarray(info)


def cholesky(a: ArrayLike, /, *, upper: bool = False) -> NDArray[Any]:
    """As numpy.linalg.cholesky: L with a = L @ L.conj().T, or U with a = U.conj().T @ U. One triangle of a is read."""
    a, = _matrices(a)
    _check_square(a)
    if a.size == 0:
        return a.copy()
    factor, info = default_client().cholesky(_stack(a), upper=upper)
    if np.asarray(info).any():
        raise LinAlgError("Matrix is not positive definite")
    return np.asarray(factor).reshape(a.shape)


def _solve_general(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """x of stacks, and info, in one job. Columns behind those of a go through the same steps: they become L⁻¹·P·b, and U is
    left to be solved for."""
    client, n = default_client(), a.shape[-1]
    wide = client.empty((len(a), n, n + b.shape[-1]), a.dtype)
    wide[..., :n], wide[..., n:] = a, b
    with client.job() as job:
        lu, _, info = job.lu(wide, (wide, client.empty(wide.shape[:2], np.int32), client.empty(len(a), np.int32)))
        x = job.triangular_solve(lu[..., :n], lu[..., n:], upper=True)
    return np.asarray(x), np.asarray(info)


def _solve_definite(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    with default_client().job() as job:
        factor, info = job.cholesky(a)
        y = job.triangular_solve(factor, b)
        x = job.triangular_solve(factor.swapaxes(-1, -2), y, y, upper=True, conj_a=True)
    return np.asarray(x), np.asarray(info)


def solve(a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen") -> NDArray[Any]:
    """As numpy.linalg.solve: x with a @ x = b. b is a vector if it has one axis, else matrices.

    assume_a: "gen" by LU, "pos" by Cholesky, for Hermitian positive definite matrices, as in scipy.linalg.solve.
    """
    a, b = _matrices(a, b)
    _check_square(a)
    if assume_a not in ("gen", "pos"):
        raise ValueError(f"assume_a is {assume_a!r}: it must be 'gen' or 'pos'")
    vector = b.ndim == 1
    b = b[:, np.newaxis] if vector else b
    if b.ndim < 2 or b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: b has shape {b.shape[:-1] if vector else b.shape}, a {a.shape}: b must have as many rows as a")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, columns = b.shape[-2:]
    if a.size == 0:
        return np.empty((*batch, n) if vector else (*batch, n, columns), b.dtype)
    b = np.broadcast_to(b, (*batch, n, columns))
    one = a.size == n * n
    if one:  # which serves all columns at once
        a, b = a.reshape(1, n, n), _stack(b).swapaxes(0, 1).reshape(1, n, prod(batch) * columns)
    x, info = (_solve_general if assume_a == "gen" else _solve_definite)(_stack(np.broadcast_to(a, (*b.shape[:-2], n, n))), _stack(b))
    if info.any():
        raise LinAlgError("Singular matrix" if assume_a == "gen" else "Matrix is not positive definite")
    if one:
        x = x.reshape(n, prod(batch), columns).swapaxes(0, 1)
    return x.reshape(*batch, n) if vector else x.reshape(*batch, n, columns)


def inv(a: ArrayLike) -> NDArray[Any]:
    """As numpy.linalg.inv."""
    a, = _matrices(a)
    _check_square(a)
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def slogdet(a: ArrayLike) -> tuple[Any, Any]:
    """As numpy.linalg.slogdet: the sign of the determinant and the logarithm of its magnitude."""
    a, = _matrices(a)
    _check_square(a)
    batch = a.shape[:-2]
    if a.size == 0:
        return np.ones(batch, a.dtype)[()], np.zeros(batch, np.abs(a).dtype)[()]
    lu, pivots, _ = _lu(a)
    diagonal = np.diagonal(lu, axis1=-2, axis2=-1)
    exchanges = (pivots != np.arange(pivots.shape[-1])).sum(-1)
    size = np.abs(diagonal)
    with np.errstate(divide="ignore", invalid="ignore"):
        sign = np.where(size > 0, diagonal / np.where(size > 0, size, 1), 0).prod(-1) * (1 - 2 * (exchanges % 2))
        logarithm = np.log(size).sum(-1)
    return sign.astype(a.dtype).reshape(batch)[()], logarithm.astype(size.dtype).reshape(batch)[()]


def det(a: ArrayLike) -> Any:
    """As numpy.linalg.det."""
    sign, logarithm = slogdet(a)
    return sign * np.exp(logarithm).astype(np.asarray(logarithm).dtype)
