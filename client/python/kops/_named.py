"""Names that NumPy and PyTorch have for what an op with attributes computes. Client, Job and the module kops have them."""
from __future__ import annotations

from math import inf
from typing import Any

from ._array import Array
from ._ops import Axes, Operand


class Named:
    """By the ops, which a subclass has."""

    def unary(self, *_args: Any, **_attributes: Any) -> Any:
        raise NotImplementedError

    def reduce(self, *_args: Any, **_attributes: Any) -> Any:
        raise NotImplementedError

    def arg_reduce(self, *_args: Any, **_attributes: Any) -> Any:
        raise NotImplementedError

    def top_k(self, *_args: Any, **_attributes: Any) -> Any:
        raise NotImplementedError

    def relu(self, x: Operand, out: Array | None = None) -> Any:
        """max(x, 0)"""
        return self.unary(x, out, function="relu")

    def gelu(self, x: Operand, out: Array | None = None) -> Any:
        """x times the distribution function of the normal distribution"""
        return self.unary(x, out, function="gelu")

    def gelu_tanh(self, x: Operand, out: Array | None = None) -> Any:
        """gelu's approximation by tanh"""
        return self.unary(x, out, function="gelu_tanh")

    def silu(self, x: Operand, out: Array | None = None) -> Any:
        """x * sigmoid(x)"""
        return self.unary(x, out, function="silu")

    def sigmoid(self, x: Operand, out: Array | None = None) -> Any:
        """1 / (1 + exp(-x))"""
        return self.unary(x, out, function="sigmoid")

    def tanh(self, x: Operand, out: Array | None = None) -> Any:
        """As numpy.tanh."""
        return self.unary(x, out, function="tanh")

    def exp(self, x: Operand, out: Array | None = None) -> Any:
        """As numpy.exp."""
        return self.unary(x, out, function="exp")

    def log(self, x: Operand, out: Array | None = None) -> Any:
        """As numpy.log."""
        return self.unary(x, out, function="log")

    def sqrt(self, x: Operand, out: Array | None = None) -> Any:
        """As numpy.sqrt."""
        return self.unary(x, out, function="sqrt")

    def abs(self, x: Operand, out: Array | None = None) -> Any:
        """As numpy.abs."""
        return self.unary(x, out, function="abs")

    def negative(self, x: Operand, out: Array | None = None) -> Any:
        """-x"""
        return self.unary(x, out, scale=-1)

    def clip(self, x: Operand, min: float | None = None, max: float | None = None, out: Array | None = None) -> Any:
        """x limited to [min, max], as numpy.clip. None: no limit."""
        return self.unary(x, out, low=-inf if min is None else min, high=inf if max is None else max)

    def sum(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.sum: over an axis, several, or all of them."""
        return self.reduce(x, "sum", axis, keepdims=keepdims, out=out)

    def prod(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.prod."""
        return self.reduce(x, "prod", axis, keepdims=keepdims, out=out)

    def mean(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.mean."""
        return self.reduce(x, "mean", axis, keepdims=keepdims, out=out)

    def max(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.max; -Inf of no elements."""
        return self.reduce(x, "max", axis, keepdims=keepdims, out=out)

    def min(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.min; Inf of no elements."""
        return self.reduce(x, "min", axis, keepdims=keepdims, out=out)

    def argmax(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.argmax, in int32. Several axes, or all, count as one, in row-major order."""
        return self.arg_reduce(x, "max", axis, keepdims=keepdims, out=out)

    def argmin(self, x: Operand, axis: Axes = None, out: Array | None = None, *, keepdims: bool = False) -> Any:
        """As numpy.argmin, in int32; axes as for argmax()."""
        return self.arg_reduce(x, "min", axis, keepdims=keepdims, out=out)

    def topk(self, x: Operand, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, *,
             out: tuple[Array, Array] | None = None) -> Any:
        """(values, indices) as of torch.topk; of equal elements the lower index comes first, and indices are int32. Results
        that are not sorted are in the order of their indices."""
        return self.top_k(x, k, axis, kind="largest" if largest else "smallest", order="value" if sorted else "index", out=out)


NAMES = [name for name in vars(Named) if not name.startswith("_") and name not in ("unary", "reduce", "arg_reduce", "top_k")]
