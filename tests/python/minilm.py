"""MiniLM-L6 in float64, plainly: what examples/encoder is compared with."""
import math
import pathlib
import sys

import numpy as np

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "encoder"
sys.path.insert(0, str(EXAMPLE))

_erf = np.vectorize(math.erf, otypes=[float])


def encode(t, ids):
    """The vector of one sentence, without padding. t: the tensors by their names in the file."""
    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-12) * t[f"{name}.weight"] + t[f"{name}.bias"]

    def heads(x):
        return x.reshape(len(ids), 12, 32).swapaxes(0, 1)

    def attention(x, name):
        q, k, v = (heads(linear(x, f"{name}.self.{part}")) for part in ("query", "key", "value"))
        scores = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(32))
        scores /= scores.sum(-1, keepdims=True)
        return norm(linear((scores @ v).swapaxes(0, 1).reshape(len(ids), 384), f"{name}.output.dense") + x,
                    f"{name}.output.LayerNorm")

    def wide(x, name):
        y = linear(x, f"{name}.intermediate.dense")
        y *= (1 + _erf(y / math.sqrt(2))) / 2
        return norm(linear(y, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")

    x = norm(t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][:len(ids)]
             + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(6):
        x = wide(attention(x, f"encoder.layer.{i}.attention"), f"encoder.layer.{i}")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)
