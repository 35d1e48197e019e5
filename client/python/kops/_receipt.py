"""What became of a job."""
from __future__ import annotations

from dataclasses import dataclass

from ._library import lib, op_shape, text


@dataclass(frozen=True)
class OpReceipt:
    """Of one op, in the words of kops.h. dtype: "f32", "f64", "f16", "bf16", "i32", "c64" or "c128". shape: of a gemm ([batch,] M, N, K),
    of an add the result's, of other ops that of x."""

    op: str
    kernel: str
    why: str
    flops: float
    bytes: float
    compute_us: float
    passed_over: str
    larger_errors: bool
    learning: bool
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Receipt:
    """Of a job, in the words of kops.h; and what it took to copy arrays that are not in kops memory."""

    device: str
    queue_us: float
    upload_us: float
    compute_us: float
    download_us: float
    total_us: float
    prepared: bool
    graph: bool
    pauses: int
    paused_us: float
    ops: tuple[OpReceipt, ...]
    copy_us: float
    copied_bytes: int


def read(job: int, copy_us: float, copied_bytes: int) -> Receipt | None:
    """None unless the job succeeded."""
    pointer = lib.kops_job_receipt(job)
    if not pointer:
        return None
    r = pointer.contents
    ops = []
    for i in range(r.n_ops):
        o = lib.kops_receipt_op(pointer, i).contents
        ops.append(OpReceipt(text(o.op), text(o.kernel), text(o.why), o.flops, o.bytes, o.compute_us,
                             text(o.passed_over), o.larger_errors, o.learning, *op_shape(o.shape)))
    return Receipt(text(r.device), r.queue_us, r.upload_us, r.compute_us, r.download_us, r.total_us, r.prepared, r.graph,
                   r.pauses, r.paused_us, tuple(ops), copy_us, copied_bytes)
