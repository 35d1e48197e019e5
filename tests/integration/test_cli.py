"""The real kops-client against the real daemon: files of every kind, exit codes, JSON, pipes, and a real job."""
import fcntl
import io
import json
import math
import os
import pty
import pwd
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

import numpy as np

from support import harness, wire

OK, FAILED, USAGE, CONNECT, TIMEOUT, CHECK = range(6)
DATA = os.environ.get("KOPS_TEST_DATA", "")


def save_npy(path, array, version):
    with open(path, "wb") as f:
        np.lib.format.write_array(f, array, version=version)


class CliTest(harness.DaemonTest):
    settings = {"max_resident_per_uid": "1G"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory(prefix="kops-cli-")
        cls.addClassCleanup(cls.folder.cleanup)
        os.chmod(cls.folder.name, 0o755)

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(self.random.randrange(1 << 31))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_cli(self, *args, code=OK, socket=None, **options):
        """The finished process; asserts its exit code."""
        env = harness.client_env(socket or self.daemon.socket)
        r = subprocess.run([harness.KOPS_CLIENT, *args], capture_output=True, env=env, cwd=self.folder.name,
                           timeout=600, **options)
        self.assertEqual(r.returncode, code, f"{args}: {r.stderr.decode(errors='replace')}")
        if code != OK:
            self.assertGreater(len(r.stderr), 10, "a failure without a sentence")
        return r

    def json(self, *args, **options):
        r = self.run_cli(*args, "--json", **options)
        document = json.loads(r.stdout)
        self.assertEqual(document["schema"], 1)
        return document

    def matrix(self, *shape, dtype=np.float32):
        return self.rng.uniform(-1, 1, shape).astype(dtype)

    def save(self, name, array):
        if name.endswith(".npy"):
            np.save(self.path(name), array)
        else:
            array.tofile(self.path(name))
        return name

    def load(self, name, shape=None, dtype=np.float32):
        if name.endswith(".npy"):
            return np.load(self.path(name))
        return np.fromfile(self.path(name), dtype).reshape(shape)

    def near(self, got, want, tolerance=1e-4):
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=tolerance)


class Files(CliTest):
    def test_npy_versions_orders_and_types(self):
        for dtype, tolerance in [(np.float32, 1e-5), (np.float64, 1e-13), (np.float16, 2e-2)]:
            a, b = self.matrix(17, 9, dtype=dtype), self.matrix(9, 23, dtype=dtype)
            want = a.astype(np.float64) @ b
            for version in [(1, 0), (2, 0), (3, 0)]:
                for order in "CF":
                    with self.subTest(dtype=dtype.__name__, version=version, order=order):
                        save_npy(self.path("a.npy"), np.asarray(a, order=order), version)
                        save_npy(self.path("b.npy"), np.asarray(b, order=order), version)
                        self.run_cli("gemm", "a.npy", "b.npy", "-o", "c.npy")
                        c = self.load("c.npy")
                        self.assertEqual(c.dtype, dtype)
                        self.near(c, want, tolerance)

    def test_batches(self):
        a, b = self.matrix(3, 4, 5), self.matrix(3, 5, 6)
        self.save("a.npy", a)
        self.save("b.npy", b)
        self.run_cli("gemm", "a.npy", "b.npy", "-o", "c.npy")
        self.near(self.load("c.npy"), a.astype(np.float64) @ b)

    def test_bin_dimensions(self):
        a, b = self.matrix(4, 6), self.matrix(6, 8)
        self.save("a.bin", a)
        self.save("b.bin", b)
        want = a.astype(np.float64) @ b
        for option in [("-m", "4"), ("-n", "8"), ("-k", "6"), ("-m", "4", "-n", "8", "-k", "6")]:
            self.run_cli("sgemm", *option, "a.bin", "b.bin", "-o", "c.bin")
            self.near(self.load("c.bin", (4, 8)), want)
        square = self.matrix(7, 7)
        self.save("s.bin", square)
        self.run_cli("sgemm", "s.bin", "s.bin", "-o", "c.npy")
        self.near(self.load("c.npy"), square.astype(np.float64) @ square)
        numbers = self.matrix(6) # one file as two matrices
        self.save("n.bin", numbers)
        self.run_cli("sgemm", "-m", "2", "n.bin", "n.bin", "-o", "c.npy", "--check")
        self.near(self.load("c.npy"), numbers.reshape(2, 3).astype(np.float64) @ numbers.reshape(3, 2))

    def test_bin_that_does_not_fit(self):
        self.save("a.bin", self.matrix(4, 6))
        self.save("b.bin", self.matrix(6, 8))
        for args in [("-m", "5"), ("-k", "7"), ("-m", "4", "-n", "9"), ()]:
            r = self.fails("sgemm", *args, "a.bin", "b.bin", "-o", "none.bin")
            self.assertRegex(r.stderr, b"96|192")  # the bytes that are there
            self.assertFalse(os.path.exists(self.path("none.bin")))

    def fails(self, *args, **options):
        """Wrong usage or a failure; nothing on stdout."""
        env = {**os.environ, "KOPS_SOCKET": self.daemon.socket}
        r = subprocess.run([harness.KOPS_CLIENT, *args], capture_output=True, env=env, cwd=self.folder.name,
                           timeout=600, **options)
        self.assertIn(r.returncode, (FAILED, USAGE), r.stderr)
        self.assertEqual(r.stdout, b"")
        self.assertGreater(len(r.stderr), 10)
        return r

    def test_bad_files(self):
        good = self.save("good.npy", self.matrix(4, 4))
        with open(self.path(good), "rb") as f:
            content = f.read()
        cases = {"missing.npy": None, "empty.npy": b"", "text.npy": b"hello, this is no array", "cut.npy": content[:-5],
                 "header.npy": content[:40], "integers.npy": None, "odd.bin": b"12345", "empty.bin": b""}
        for name, data in cases.items():
            if data is not None:
                with open(self.path(name), "wb") as f:
                    f.write(data)
        np.save(self.path("integers.npy"), np.ones((4, 4), np.int32))
        for name in cases:
            with self.subTest(name):
                r = self.fails("sgemm", name, good, "-o", "none.npy")
                self.assertIn(name.encode(), r.stderr)
                self.assertFalse(os.path.exists(self.path("none.npy")))
        for verb in ("transpose", "softmax"):
            self.assertIn(b"empty.bin", self.fails(verb, "empty.bin", "-o", "none.npy").stderr)
        self.assertIn(b"is empty", self.fails("sgemm", "empty.bin", "empty.bin").stderr)
        self.fails("sgemm", ".", good)
        self.save("odd.npy", self.matrix(3, 5))
        r = self.fails("sgemm", good, "odd.npy")
        self.assertIn(b"4", r.stderr)

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return name

    def test_other_formats_are_no_elements(self):
        """Each has the size of a square matrix of f32, and would be multiplied."""
        self.save("ok.npy", self.matrix(4, 4))
        text = b"1.25,-2.5\n3.0,4.125\n 1,2 ".ljust(64, b" ")[:64]
        zipped = b"PK\x03\x04".ljust(64, b"\0")
        floats = self.matrix(4, 4).tobytes()
        cases = [self.write("m.csv", text), self.write("m", text), self.write("m.dat", zipped)]
        cases += [self.write("raw." + ending, floats) for ending in
                  ("csv", "tsv", "txt", "npz", "json", "mat", "h5", "parquet", "pt", "pkl", "zip", "gz", "CSV")]
        for name in cases:
            for args in [("sgemm", name, "ok.npy"), ("gemm", "ok.npy", name), ("sgemm", "ok.npy", "ok.npy", "-c", name),
                         ("softmax", name), ("transpose", name), ("add", name, "ok.npy"), ("add", "ok.npy", name)]:
                with self.subTest(args):
                    r = self.fails(*args, "-o", "none.bin")
                    self.assertIn(b"cannot use " + name.encode(), r.stderr)
                    self.assertRegex(r.stderr, b"numpy.save|unpack it")
            r = self.fails("run", "-", input=f"x = load {name}\ny = copy x\n".encode())
            self.assertIn(b"standard input:1: cannot use " + name.encode(), r.stderr)
            self.assertFalse(os.path.exists(self.path("none.bin")))

    def test_the_conversion_that_is_proposed_works(self):
        a = self.matrix(4, 4)
        np.savetxt(self.path("m.csv"), a, delimiter=",")
        np.savetxt(self.path("text"), a)
        np.savez(self.path("m.npz"), weights=a)
        with open(self.path("m.json"), "w", encoding="ascii") as f:
            json.dump(a.tolist(), f)
        for name in ("m.csv", "text", "m.npz", "m.json"):
            sentence = self.fails("transpose", name).stderr.decode()
            code = sentence.split('python3 -c "')[1].split('"')[0]
            subprocess.run([sys.executable, "-c", code], cwd=self.folder.name, check=True)
            self.run_cli("transpose", "matrix.npy", "-o", "t.npy")
            np.testing.assert_array_equal(self.load("t.npy"), a.T)

    def test_outputs_of_other_formats(self):
        self.save("a.npy", self.matrix(4, 4))
        for name in ("c.csv", "c.npz", "c.txt", "c.npy.gz", "c.MAT"):
            r = self.fails("sgemm", "a.npy", "a.npy", "-o", name)
            self.assertIn(b"cannot write " + name.encode(), r.stderr)
            r = self.fails("run", "-", input=f"x = load a.npy\ny = copy x\nsave y {name}\n".encode())
            self.assertIn(b"standard input:3: cannot write " + name.encode(), r.stderr)
            self.assertFalse(os.path.exists(self.path(name)))

    def test_a_dash_is_standard_input_or_output(self):
        a, b = self.matrix(4, 6), self.matrix(6, 8)
        self.save("a.bin", a)
        self.save("b.bin", b)
        self.save("a.npy", a)
        want = a.astype(np.float64) @ b
        raw = a.tobytes()
        with open(self.path("a.npy"), "rb") as f:
            npy = f.read()
        for given in ({"input": raw}, {"input": npy}, {"stdin": "a.bin"}, {"stdin": "a.npy"}):
            with self.subTest(given.keys()):
                if "stdin" in given:
                    given["stdin"] = open(self.path(given["stdin"]), "rb")
                    self.addCleanup(given["stdin"].close)
                r = self.run_cli("sgemm", "-k", "6", "-", "b.bin", "-o", "-", "--check", **given)
                self.near(np.frombuffer(r.stdout, np.float32).reshape(4, 8), want)
                self.assertIn(b"openblas", r.stderr)
        r = self.run_cli("sgemm", "a.npy", "-", "-o", "-", "--npy", "-q", input=b.tobytes())
        self.near(np.load(io.BytesIO(r.stdout)), want)
        self.assertEqual(r.stderr, b"")
        r = self.run_cli("transpose", "a.npy", "--npy")  # where nothing is saved it is the same
        np.testing.assert_array_equal(np.load(io.BytesIO(r.stdout)), a.T)
        r = self.run_cli("sgemm", "a.npy", "b.bin", "-c", "-", "-o", "c.npy", input=np.ones((4, 8), np.float32).tobytes())
        self.near(self.load("c.npy"), want + 1)
        d = self.json("softmax", "-n", "6", "-", "-o", "y.npy", input=raw)
        self.assertEqual((d["inputs"][0]["file"], d["inputs"][0]["shape"]), ("-", [4, 6]))
        self.save("-", a)  # a file of that name
        self.run_cli("transpose", "-n", "6", "./-", "-o", "-")
        os.unlink(self.path("-"))

    def test_a_dash_in_job_files(self):
        a = self.matrix(5, 3)
        self.save("a.npy", a)
        with open(self.path("job.txt"), "w", encoding="ascii") as f:
            f.write("x = load - cols=3\ny = transpose x\nz = copy x\nsave y -\nsave z z.npy\n")
        r = self.run_cli("run", "job.txt", input=a.tobytes())
        np.testing.assert_array_equal(np.frombuffer(r.stdout, np.float32).reshape(3, 5), a.T)
        np.testing.assert_array_equal(self.load("z.npy"), a)
        r = self.fails("run", "-", input=b"x = load - cols=3\ny = transpose x\n")
        self.assertIn(b"standard input:1: only one file can be -", r.stderr)
        r = self.fails("run", "-", input=b"x = load a.npy\ny = transpose x\nsave x -\nsave y -\n")
        self.assertIn(b"standard input:4: standard output takes one matrix", r.stderr)

    def test_a_dash_that_does_not_fit(self):
        self.save("a.npy", self.matrix(4, 4))
        for args, given, says in [
                (("sgemm", "-", "-"), bytes(64), b"only one file can be -"),
                (("softmax", "-"), b"", b"cannot read standard input: No data"),
                (("softmax", "-"), bytes(7), b"standard input has 7 bytes"),
                (("transpose", "-"), b"1.0 2.0\n3.0 4.0\n", b"cannot use standard input"),
                (("transpose", "-"), b"\x93NUMPY\x01\x00v\x00", b"standard input")]:
            with self.subTest(args):
                self.save("b.bin", np.zeros(4, np.uint16))
                self.assertIn(says, self.fails(*args, "-o", "-", input=given).stderr)
        r = self.run_cli("transpose", "a.npy", "-o", "-", "--json", code=FAILED)
        self.assertIn("standard output takes one matrix", json.loads(r.stdout)["error"])

    def test_chains_of_pipes(self):
        a, b = self.matrix(300, 300), self.matrix(300, 300)
        self.save("a.bin", a)
        self.save("b.bin", b)
        chain = ('"$0" sgemm -q - b.bin -o - <a.bin | "$0" transpose -q - --npy | "$0" sgemm -q - <(cat b.bin) -o c.npy && '
                 'mkfifo pipe && { "$0" transpose -q a.bin -o pipe & "$0" transpose -q pipe -o same.bin; wait; }')
        subprocess.run(["bash", "-c", "set -o pipefail; " + chain, harness.KOPS_CLIENT], check=True, timeout=600,
                       cwd=self.folder.name, env=harness.client_env(self.daemon.socket))
        self.near(self.load("c.npy"), (a.astype(np.float64) @ b).T @ b, 1e-2)
        np.testing.assert_array_equal(self.load("same.bin", (300, 300)), a)

    def test_a_broken_pipe_ends_with_a_sentence(self):
        self.save("big.bin", self.matrix(700, 700))
        for args, says in [(("-o", "-"), "kops-client transpose: cannot write standard output: Broken pipe\n"), ((), "")]:
            out, into = os.pipe()
            os.close(out)
            p = subprocess.run([harness.KOPS_CLIENT, "transpose", "big.bin", "-q", *args], stdout=into, stderr=subprocess.PIPE,
                               text=True, cwd=self.folder.name, env=harness.client_env(self.daemon.socket), timeout=600,
                               check=False)
            os.close(into)
            self.assertEqual((p.returncode, p.stderr), (FAILED, says))

    def test_output_is_never_spoiled_by_a_failure(self):
        self.save("a.npy", self.matrix(4, 4))
        with open(self.path("kept.npy"), "wb") as f:
            f.write(b"precious")
        self.fails("sgemm", "a.npy", "a.npy", "--kernel", "none-such", "-o", "kept.npy")
        self.run_cli("sgemm", "a.npy", "a.npy", "-o", "kept.npy", socket="/nowhere/sock", code=CONNECT)
        with open(self.path("kept.npy"), "rb") as f:
            self.assertEqual(f.read(), b"precious")
        self.fails("sgemm", "a.npy", "a.npy", "-o", "no/such/folder/c.npy")
        self.assertEqual([n for n in os.listdir(self.folder.name) if "kept.npy" in n], ["kept.npy"])

    def test_output_over_an_input(self):
        a = self.matrix(5, 5)
        self.save("io.npy", a)
        self.run_cli("sgemm", "io.npy", "io.npy", "-o", "io.npy")
        self.near(self.load("io.npy"), a.astype(np.float64) @ a)

    def test_pipes(self):
        a = self.matrix(6, 6)
        self.save("a.bin", a)
        r = self.run_cli("sgemm", "a.bin", "a.bin")
        self.near(np.frombuffer(r.stdout, np.float32).reshape(6, 6), a.astype(np.float64) @ a)
        self.assertIn(b"gemm f32 6\xc3\x976\xc3\x976  openblas: ", r.stderr)
        self.assertEqual(self.run_cli("sgemm", "a.bin", "a.bin", "-q").stderr, b"")

    def test_a_terminal_gets_no_raw_bytes(self):
        self.save("a.npy", self.matrix(30, 30))
        master, slave = pty.openpty()
        p = subprocess.Popen([harness.KOPS_CLIENT, "sgemm", "a.npy", "a.npy", "--socket", self.daemon.socket],
                             stdout=slave, stderr=subprocess.PIPE, cwd=self.folder.name)
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:
            pass
        p.communicate()
        os.close(master)
        self.assertEqual(p.returncode, 0)
        self.assertIn(b"30", shown)
        shown.decode()


class Verbs(CliTest):
    def test_sgemm_with_everything(self):
        a, b, c = self.matrix(9, 6), self.matrix(11, 9), self.matrix(6, 11)
        self.save("a.npy", a)
        self.save("b.npy", b)
        self.save("c.npy", c)
        d = self.json("sgemm", "--trans-a", "--trans-b", "--alpha", "0.5", "-c", "c.npy", "--beta", "-2", "--check",
                      "--kernel", "reference", "--device", "cpu", "--priority", "high", "--timeout", "20s",
                      "--precision", "ieee", "a.npy", "b.npy", "-o", "y.npy")
        self.near(self.load("y.npy"), 0.5 * a.T.astype(np.float64) @ b.T - 2 * c.astype(np.float64))
        self.assertEqual((d["receipt"]["ops"][-1]["dtype"], d["receipt"]["ops"][-1]["shape"]), ("f32", [6, 11, 9]))
        text = json.dumps(d)
        self.assertIn("reference", text)
        self.assertIn("cpu", text)

    def test_gemm_types_of_raw_files(self):
        a = self.matrix(8, 8, dtype=np.float64)
        self.save("a.bin", a)
        self.run_cli("gemm", "--dtype", "f64", "a.bin", "a.bin", "-o", "c.bin", "--check")
        self.near(self.load("c.bin", (8, 8), np.float64), a @ a, 1e-13)
        h = self.matrix(8, 8, dtype=np.float16)
        self.save("h.bin", h)
        self.run_cli("gemm", "--dtype", "f16", "h.bin", "h.bin", "-o", "c.bin", "--check")
        self.near(self.load("c.bin", (8, 8), np.float16), h.astype(np.float64) @ h, 2e-2)

    def test_gemm_with_bias_and_activation(self):
        def silu(x):
            return x / (1 + np.exp(-x))

        a, b, row, column = self.matrix(6, 9), self.matrix(9, 11), self.matrix(11), self.matrix(6, 1)
        product = a.astype(np.float64) @ b
        for name, array in ("a", a), ("b", b), ("at", a.T), ("bt", b.T), ("row", row), ("column", column), ("whole", a @ b):
            self.save(f"{name}.npy", np.ascontiguousarray(array))
            self.save(f"{name}.bin", np.ascontiguousarray(array))
        for arguments, want in ((("a.npy", "b.npy", "--bias", "row.npy"), product + row),
                                (("--activation", "silu", "a.npy", "b.npy"), silu(product)),
                                (("a.npy", "b.npy", "--bias", "column.npy", "--activation", "relu"),
                                 np.maximum(product + column, 0)),
                                (("--bias", "row.bin", "--activation", "silu", "-k", "9", "a.bin", "b.bin"), silu(product + row)),
                                (("--bias", "row.bin", "--trans-a", "--trans-b", "at.npy", "bt.npy"), product + row),
                                (("--bias", "row.bin", "--trans-a", "--trans-b", "-k", "9", "at.bin", "bt.bin"), product + row),
                                (("a.npy", "b.npy", "--bias", "whole.bin"), 2 * product),
                                (("a.npy", "b.npy", "--bias", "whole.npy", "-c", "whole.bin", "--beta", "-2", "--activation",
                                  "silu"), silu(0 * product))):
            for verb in "gemm", "sgemm":
                self.run_cli(verb, *arguments, "-o", "y.npy", "--check")
                self.near(self.load("y.npy"), want)
        self.run_cli("gemm", "a.npy", "b.npy", "-c", "whole.npy", "--bias", "whole.npy", "-o", "whole.npy", "--check")
        self.near(self.load("whole.npy"), 3 * product)
        self.run_cli("gemm", "a.npy", "b.npy", "--bias", "-", "-o", "y.npy", input=row.tobytes())
        self.near(self.load("y.npy"), product + row)
        for name, gelu in ("gelu", lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))), \
                          ("gelu_tanh", lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))):
            self.run_cli("gemm", "a.npy", "b.npy", "--bias", "row.npy", "--activation", name, "-o", "y.npy", "--check")
            self.near(self.load("y.npy"), gelu(product + row), 2e-6)
        out = self.json("gemm", "a.npy", "b.npy", "--bias", "row.npy", "--check", "-o", "y.npy")
        self.assertEqual([(x["file"], x["shape"]) for x in out["inputs"]],
                         [("a.npy", [6, 9]), ("b.npy", [9, 11]), ("row.npy", [11])])
        self.save("short.bin", row[:5])
        self.save("wide.npy", row.astype(np.float64))
        for arguments, code, sentence in (
                (("a.npy", "b.npy", "row.npy"), USAGE, "expected two files"),
                (("a.npy", "b.npy", "--bias", "a.npy"), FAILED, "bias is 6x9, which does not repeat to c's 6x11"),
                (("a.npy", "b.npy", "--bias", "short.bin"), FAILED,
                 "short.bin has 20 bytes of f32, which matches neither the result nor some of its last axes"),
                (("a.npy", "b.npy", "--bias", "wide.npy"), FAILED, "gemm takes inputs of one dtype, not f32 and f64"),
                (("a.npy", "b.npy", "--activation", "swish"), USAGE, "none, relu, gelu, gelu_tanh or silu, not 'swish'")):
            self.assertIn(sentence, self.run_cli("gemm", *arguments, "-o", "y.npy", code=code).stderr.decode())

    def test_bias_and_activation_in_a_job_file(self):
        x, w, bias = self.matrix(10, 7), self.matrix(4, 7), self.matrix(4)
        for name, array in ("x", x), ("w", w), ("bias", bias):
            self.save(f"{name}.npy", array)
        self.save("bias.bin", bias)
        loads = b"x = load x.npy\nw = load w.npy\nb = load bias.npy\n"
        self.run_cli("run", "-", "--check", input=loads + b"s = gemm x w' bias=b activation=relu\nz = gemm s w activation=silu c=x\n"
                     b"save s s.npy\nsave z z.npy\n")
        s = np.maximum(x.astype(np.float64) @ w.T + bias, 0)
        z = s @ w + x
        self.near(self.load("s.npy"), s)
        self.near(self.load("z.npy"), z / (1 + np.exp(-z)))
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\nw = load w.npy\nb = load bias.bin rows=1\n"
                     b"s = gemm x w' bias=b\nt = gemm w x' bias=b'\nsave s s.npy\nsave t t.npy\n")
        self.near(self.load("s.npy"), x.astype(np.float64) @ w.T + bias)
        self.near(self.load("t.npy"), (x.astype(np.float64) @ w.T + bias).T)
        for line, sentence in (("y = gemm x w' b", "'b' is one too many: others have their name before them, NAME=VALUE"),
                               ("y = gemm x w' bias=v", "no value is named 'v'"),
                               ("y = gemm x w' bias=b'", "b has one dimension and cannot be transposed"),
                               ("y = gemm x w' bias=x", "bias is 10x7, which does not repeat to c's 10x4"),
                               ("y = gemm x w' activation=swish", "none, relu, gelu, gelu_tanh or silu, not 'swish'")):
            r = self.run_cli("run", "-", input=loads + f"{line}\nsave y y.npy\n".encode(), code=FAILED)
            self.assertIn(sentence, r.stderr.decode())

    def test_softmax(self):
        x = self.matrix(5, 12) * 10
        self.save("x.npy", x)
        z = np.exp(0.3 * x.astype(np.float64))
        want = z / z.sum(-1, keepdims=True)
        self.run_cli("softmax", "--scale", "0.3", "x.npy", "-o", "y.npy", "--check")
        self.near(self.load("y.npy"), want, 1e-6)
        self.run_cli("softmax", "--scale", "0.3", "--log", "x.npy", "-o", "y.npy", "--check")
        self.near(self.load("y.npy"), np.log(want), 1e-5)
        self.save("x.bin", x)
        self.run_cli("softmax", "-n", "12", "--scale", "0.3", "x.bin", "-o", "y.bin")
        self.near(self.load("y.bin", (5, 12)), want, 1e-6)

    def test_transpose(self):
        for shape in [(5, 12), (2, 3, 4), (2, 2, 3, 5)]:
            x = self.matrix(*shape)
            self.save("x.npy", x)
            self.run_cli("transpose", "x.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), np.swapaxes(x, -1, -2))

    def test_add(self):
        x = self.matrix(6, 9)
        self.save("x.npy", x)
        for other in [self.matrix(6, 9), self.matrix(9), self.matrix(1, 9), self.matrix(6, 1), self.matrix(1)]:
            self.save("b.npy", other)
            self.run_cli("add", "x.npy", "b.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x + other)

    def test_reduce(self):
        kinds = {"sum": np.sum, "max": np.max, "mean": np.mean}
        for shape in [(5, 12), (4097,), (3, 1), (2, 3, 40), (2, 2, 3, 5), (6, 3000)]:
            x = self.matrix(*shape)
            self.save("x.npy", x)
            for kind, function in kinds.items():
                with self.subTest(shape=shape, kind=kind):
                    self.run_cli("reduce", "--kind", kind, "x.npy", "-o", "y.npy", "--check")
                    want = function(x.astype(np.float64), axis=-1)
                    self.near(self.load("y.npy"), want if want.ndim else want.reshape(1), 1e-4)
        self.run_cli("reduce", "x.npy", "-o", "y.npy")  # the sum, by itself
        self.near(self.load("y.npy"), x.astype(np.float64).sum(-1), 1e-4)
        self.save("x.bin", x)
        self.run_cli("reduce", "-n", "3000", "--kind", "max", "x.bin", "-o", "y.bin", "--check")
        np.testing.assert_array_equal(self.load("y.bin", (6,)), x.max(-1))
        for dtype in (np.float16, np.float64, np.float32):
            self.save("x.npy", x.astype(dtype))
            d = self.json("reduce", "x.npy", "--kind", "mean", "--check", "-o", "y.npy")
            self.assertEqual((d["verb"], d["ok"], d["outputs"][0]["shape"]), ("reduce", True, [6]))
            self.assertEqual((self.load("y.npy").dtype, d["checks"][0]["compared"]), (dtype, 6))
        self.run_cli("reduce", "x.npy", "--kind", "median", code=USAGE)
        self.save("i.npy", x.astype(np.int32))
        self.assertIn(b"reduce takes f32, f64, f16, bf16, c64, c128, not i32", self.run_cli("reduce", "i.npy", code=FAILED).stderr)

    def test_reduce_in_a_job(self):
        x = self.matrix(9, 31)
        self.save("x.npy", x)
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\nm = reduce x kind=max\nc = reduce x' kind=mean\n"
                     b"s = reduce c\nsave m m.npy\nsave c c.npy\nsave s s.npy\n")
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(self.load("m.npy"), x.max(1))
        self.run_cli("arg_reduce", "--kind", "min", "x.npy", "-o", "i.npy", "--check")
        self.assertEqual(self.load("i.npy").dtype, np.int32)
        np.testing.assert_array_equal(self.load("i.npy"), x.argmin(1))
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\ni = arg_reduce x'\np = reduce x kind=prod\n"
                     b"save i i.npy\nsave p p.npy\n")
        np.testing.assert_array_equal(self.load("i.npy"), x.argmax(0))
        np.testing.assert_allclose(self.load("p.npy"), x.astype(np.float64).prod(1), rtol=1e-6)
        self.run_cli("top_k", "x.npy", "--k", "3", "--kind", "smallest", "-o", "k.npy", "--check")
        np.testing.assert_array_equal(self.load("k.npy"), np.sort(x, 1)[:, :3])
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\nk = top_k x' k=2 order=index\nsave k k.npy\n")
        np.testing.assert_array_equal(np.sort(self.load("k.npy"), 1), np.sort(x.T, 1)[:, -2:])
        # Other outputs than the first, each to a file of its own
        self.run_cli("top_k", "x.npy", "--k", "3", "-o", "k.npy", "--indices", "i.npy", "--check")
        self.assertEqual(self.load("i.npy").dtype, np.int32)
        np.testing.assert_array_equal(np.take_along_axis(x, self.load("i.npy").astype(int), 1), self.load("k.npy"))
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\ns = search x x k=1 metric=l2 indices=near\nsave near n.npy\n")
        np.testing.assert_array_equal(self.load("n.npy")[:, 0], range(len(x)))
        shown = self.run_cli("search", "x.npy", "x.npy", "--k", "1", "--indices", "i.npy", "--npy").stdout
        self.assertEqual(np.load(io.BytesIO(shown)).shape, (len(x), 1))
        for bad, words in ((b"s = search x x indices=s", b"'s' is named twice"), (b"s = search x x indices=1a", b"not a valid name"),
                           (b"s = search x x indices=x", b"'x' has a value"), (b"s = softmax x indices=i", b"no setting 'indices'"),
                           (b"s = search x x indices=i indices=j", b"i and j are the same output")):
            self.assertIn(words, self.run_cli("run", "-", input=b"x = load x.npy\n" + bad + b"\nsave s s.npy\n", code=FAILED).stderr)
        self.assertIn(b"fewer than k = 100 elements", self.run_cli("top_k", "x.npy", "--k", "100", code=FAILED).stderr)
        self.run_cli("search", "x.npy", "x.npy", "--k", "2", "--metric", "l2", "-o", "k.npy", "--check")
        np.testing.assert_array_equal(self.load("k.npy")[:, 0], np.zeros(len(x)))
        self.save("a.npy", x @ x.T + 9 * np.eye(9, dtype=np.float32))
        self.run_cli("cholesky", "a.npy", "-o", "l.npy", "--check")
        self.near(self.load("l.npy"), np.linalg.cholesky(self.load("a.npy").astype(np.float64)), 1e-5)
        self.run_cli("run", "-", "--check", input=b"a = load a.npy\nu = cholesky a upper=yes\nsave u u.npy\n")
        np.testing.assert_array_equal(self.load("u.npy"), self.load("l.npy").T)
        self.run_cli("lu", "x.npy", "-o", "lu.npy", "--pivots", "p.npy", "--info", "i.npy", "--check")
        lu, want = self.load("lu.npy").astype(np.float64), x.astype(np.float64)
        for i, pivot in enumerate(self.load("p.npy")):
            want[[i, pivot]] = want[[pivot, i]]
        k = min(x.shape)
        self.near((np.tril(lu[:, :k], -1) + np.eye(len(x), k)) @ np.triu(lu[:k]), want, 1e-5)
        self.assertEqual(list(self.load("i.npy")), [0])
        # The check multiplies back, with pivots that nobody asked for, and is as strict with them as with others.
        for more in ((), ("--pivots", "p.npy")):
            checked = json.loads(self.run_cli("lu", "x.npy", "-o", "lu.npy", "--check", "--json", *more).stdout)
            self.assertGreater(checked["checks"][0]["max_error"], 0)
            self.assertEqual(len(checked["outputs"]), 1 + bool(more))
        self.save("singular.npy", np.ones((2, 3, 3)))
        self.run_cli("run", "-", "--check", input=b"a = load singular.npy\nf = lu a info=i pivots=p\nc = cholesky a info=j\n"
                     b"save i i.npy\nsave j j.npy\nsave p p.npy\n")
        self.assertEqual([list(self.load(f"{name}.npy")) for name in "ij"], [[2, 2], [2, 2]])
        np.testing.assert_array_equal(self.load("p.npy"), [[0, 1, 2]] * 2)
        self.run_cli("triangular_solve", "l.npy", "x.npy", "-o", "y.npy", "--check")
        self.near(self.load("l.npy") @ self.load("y.npy"), x, 1e-5)
        self.save("xt.npy", np.ascontiguousarray(x.T))
        self.run_cli("triangular_solve", "u.npy", "xt.npy", "--upper", "--right", "-o", "y.npy", "--check")
        self.near(self.load("y.npy") @ self.load("u.npy"), x.T, 1e-5)
        self.near(self.load("c.npy"), wide.mean(0), 1e-6)
        self.near(self.load("s.npy"), wide.mean(0).sum(keepdims=True), 1e-5)

    def test_small_types(self):
        for dtype, tolerance in [(np.float16, 1e-3), (np.float32, 1e-6)]:
            x, row = self.matrix(7, 33, dtype=dtype), self.matrix(33, dtype=dtype)
            self.save("x.npy", x)
            self.save("row.npy", row)
            z = np.exp(2 * x.astype(np.float64))
            self.run_cli("softmax", "--scale", "2", "x.npy", "-o", "y.npy", "--check")
            self.assertEqual(self.load("y.npy").dtype, dtype)
            self.near(self.load("y.npy"), z / z.sum(-1, keepdims=True), tolerance)
            self.run_cli("add", "x.npy", "row.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x + row)
            self.save("x.bin", x)
            self.run_cli("add", "-m", "7", "x.bin", "row.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x + row)
            self.run_cli("transpose", "x.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x.T)
            self.run_cli("multiply", "x.npy", "row.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x * row)
            self.run_cli("multiply", "-m", "7", "x.bin", "row.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x * row)
            self.run_cli("subtract", "x.npy", "row.npy", "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), x - row)
            self.run_cli("unary", "--function", "tanh", "--scale", "2", "--low", "-0.5", "x.npy", "-o", "y.npy", "--check")
            self.near(self.load("y.npy"), np.tanh(2 * x.astype(np.float64)).clip(-0.5, None), tolerance)
            self.run_cli("unary", "--function", "gelu", "x.npy", "-o", "y.npy", "--check")
            self.run_cli("run", "-", "--check", input=b"x = load x.npy\ny = unary x function=relu high=0.5\nsave y y.npy\n")
            np.testing.assert_array_equal(self.load("y.npy"), x.clip(0, 0.5))

    def test_operands_by_their_names(self):
        def norm(x, weight=1.0, bias=0.0, eps=1e-5):
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias

        x, w, b = self.matrix(6, 33), self.matrix(33), self.matrix(33)
        for name, array in ("x", x), ("w", w), ("b", b):
            self.save(f"{name}.npy", array)
            self.save(f"{name}.bin", array)
        for arguments, want in ((("x.npy",), norm(x)), (("x.npy", "--weight", "w.npy"), norm(x, w)),
                                (("--bias", "b.npy", "x.npy"), norm(x, 1, b)),
                                (("x.npy", "--bias", "b.npy", "--weight", "w.npy", "--eps", "0.5"), norm(x, w, b, 0.5)),
                                (("-m", "6", "x.bin", "--weight", "w.bin", "--bias", "b.bin"), norm(x, w, b))):
            self.run_cli("layer_norm", *arguments, "-o", "y.npy", "--check")
            self.near(self.load("y.npy"), want, 1e-5)
        out = self.json("layer_norm", "x.npy", "--bias", "b.npy", "-o", "y.npy")
        self.assertEqual([row["file"] for row in out["inputs"]], ["x.npy", "b.npy"])
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\nw = load w.npy\nb = load b.npy\nt = layer_norm x weight=w\n"
                     b"y = layer_norm t bias=b eps=0.5 kernel=vectorised\nsave y y.npy\n")
        self.near(self.load("y.npy"), norm(norm(x, w), 1, b, 0.5), 1e-5)
        self.save("short.bin", w[:5])
        for arguments, code, sentence in (
                (("x.npy", "w.npy"), USAGE, "one file"),
                (("x.npy", "--weight", "x.npy"), FAILED, "weight is 6x33 and x 6x33; weight has one axis, as long as x's last"),
                (("x.npy", "--weight", "short.bin"), FAILED, "short.bin has 20 bytes of f32, which matches neither the result nor some of its last axes"),
                (("x.npy", "--weight", "none.npy"), FAILED, "none.npy"),
                (("x.npy", "--eps", "-1"), FAILED, "eps is -1")):
            self.assertIn(sentence, self.run_cli("layer_norm", *arguments, "-o", "y.npy", code=code).stderr.decode())
        for line, sentence in (("y = layer_norm x x", "'x' is one too many: others have their name before them, NAME=VALUE"),
                               ("y = layer_norm weight=x", "layer_norm takes 1 operand, got 0"),
                               ("y = layer_norm x weight=v", "no value is named 'v'"),
                               ("y = layer_norm x mask=x", "layer_norm has no setting 'mask'")):
            r = self.run_cli("run", "-", input=f"x = load x.npy\n{line}\nsave y y.npy\n".encode(), code=FAILED)
            self.assertIn(sentence, r.stderr.decode())
        for files in ("x.npy", "--weight", "w.npy", "--residual", "x.npy"), ("-m", "6", "x.bin", "--weight", "w.bin", "--residual", "x.bin"):
            self.run_cli("rms_norm", *files, "-o", "y.npy", "--check")
            self.near(self.load("y.npy"), 2 * x / np.sqrt((4 * x * x).mean(-1, keepdims=True) + 1e-5) * w, 1e-5)
        self.save("m.npy", np.where(np.tri(6, 33, 20) > 0, 0, -np.inf).astype(np.float32))
        self.run_cli("softmax", "x.npy", "--mask", "m.npy", "-o", "y.npy", "--check")
        z = np.exp(x + self.load("m.npy"))
        self.near(self.load("y.npy"), z / z.sum(-1, keepdims=True), 1e-5)
        self.run_cli("attention", "x.npy", "x.npy", "x.npy", "--causal", "top_left", "-o", "y.npy", "--check")
        z = np.exp(x @ x.T / 33 ** 0.5) * np.tri(6)
        self.near(self.load("y.npy"), z / z.sum(-1, keepdims=True) @ x, 1e-5)
        self.save("n.npy", np.array([2], np.int32))
        self.run_cli("attention", "x.npy", "x.npy", "x.npy", "--lengths", "n.npy", "-o", "y.npy", "--check")
        z = np.exp(x @ x[:2].T / 33 ** 0.5)
        self.near(self.load("y.npy"), z / z.sum(-1, keepdims=True) @ x[:2], 1e-5)
        self.run_cli("run", "-", input=b"x = load x.npy\nn = load n.npy\ny = attention x x x lengths=n\nsave y y2.npy\n")
        self.near(self.load("y2.npy"), self.load("y.npy"), 1e-6)
        self.assertIn("--weight FILE", self.run_cli("layer_norm", "--help").stdout.decode())
        tuned = self.run_cli("tune", "layer_norm", "64x32", "--ops", "2").stdout.decode()
        self.assertIn("layer_norm f32 64x32", tuned)

    def test_rows_by_their_indices(self):
        x, indices = self.matrix(9, 31), np.array([4, 0, -1, 8, 9, 4], np.int32)
        want = np.concatenate([x, np.zeros((1, 31), np.float32)])[np.where((indices < 0) | (indices > 8), 9, indices)]
        for name, array in ("x", x), ("i", indices):
            self.save(f"{name}.npy", array)
            self.save(f"{name}.bin", array)
        for files in ("x.npy", "i.npy"), ("-m", "9", "x.bin", "i.npy"), ("x.npy", "i.bin"), ("-n", "31", "x.bin", "i.bin"), \
                ("--dtype", "f32", "-n", "31", "x.bin", "i.npy"), ("--kernel", "reference", "x.npy", "i.npy"):
            self.run_cli("gather", *files, "-o", "y.npy", "--check")
            np.testing.assert_array_equal(self.load("y.npy"), want)
        self.save("pairs.npy", indices.reshape(2, 3))
        self.run_cli("run", "-", "--check", input=b"x = load x.npy\ni = load pairs.npy\ny = gather x i\nz = gather x' i\n"
                     b"save y y.npy\nsave z z.npy\n")
        np.testing.assert_array_equal(self.load("y.npy"), want.reshape(2, 3, 31))
        self.assertEqual(self.load("z.npy").shape, (2, 3, 9))
        for dtype in np.int32, np.complex128, np.float16:
            table = self.matrix(9, 5).astype(dtype)
            self.save("t.npy", table)
            self.run_cli("gather", "t.npy", "i.npy", "-o", "y.npy", "--check")
            self.assertEqual(self.load("y.npy").dtype, dtype)
            np.testing.assert_array_equal(self.load("y.npy")[3], table[8])
        self.save("odd.bin", np.zeros(7, np.uint8))
        for files, sentence in ((("x.npy", "x.npy"), "indices of gather are i32, not f32"),
                                (("x.npy", "odd.bin"), "odd.bin has 7 bytes; elements of 4 bytes need a multiple of 4"),
                                (("i.npy", "i.npy"), "x has rank 1")):
            self.assertIn(sentence, self.run_cli("gather", *files, code=FAILED).stderr.decode())
        self.assertIn("for indices", self.run_cli("gather", "--help").stdout.decode())
        self.assertIn("gather f32 33x70x20", self.run_cli("tune", "gather", "33x70x20").stdout.decode())

    def test_bf16_of_raw_files(self):
        bits = self.rng.integers(0x3f00, 0x4000, (6, 40)).astype(np.uint16) # 0.5 … 2
        x = (bits.astype(np.uint32) << 16).view(np.float32)
        self.save("x.bin", bits)
        self.run_cli("transpose", "--dtype", "bf16", "-n", "40", "x.bin", "-o", "y.bin", "--check")
        np.testing.assert_array_equal(self.load("y.bin", (40, 6), np.uint16), bits.T)
        self.run_cli("add", "--dtype", "bf16", "-n", "40", "x.bin", "x.bin", "-o", "y.bin", "--check")
        np.testing.assert_array_equal(self.load("y.bin", (6, 40), np.uint16), bits + 0x80) # twice: the next exponent
        self.run_cli("softmax", "--dtype", "bf16", "-n", "40", "x.bin", "-o", "y.bin", "--check")
        y = (self.load("y.bin", (6, 40), np.uint16).astype(np.uint32) << 16).view(np.float32)
        z = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(y, z / z.sum(-1, keepdims=True), rtol=2 ** -8)

    def test_random(self):
        self.run_cli("random", "30x40", "--seed", "7", "-o", "x.npy")
        x = self.load("x.npy")
        self.assertEqual((x.dtype, x.shape), (np.float32, (30, 40)))
        self.assertTrue((abs(x) < 1).all())
        self.assertLess(abs(x.mean()), 0.1)
        self.assertGreater(x.std(), 0.5)
        r = self.run_cli("random", "30x40", "--seed", "7")
        np.testing.assert_array_equal(np.frombuffer(r.stdout, np.float32).reshape(30, 40), x)
        self.assertNotEqual(self.run_cli("random", "8").stdout, self.run_cli("random", "8").stdout)
        self.run_cli("random", "2x3x4x5", "--dtype", "f16", "-o", "h.npy")
        self.assertEqual((self.load("h.npy").dtype, self.load("h.npy").shape), (np.float16, (2, 3, 4, 5)))
        r = self.run_cli("random", "3x0", "--npy", socket="/nowhere")  # no kopsd is needed
        self.assertEqual(np.load(io.BytesIO(r.stdout)).shape, (3, 0))
        for shape in ("", "x", "3x", "x3", "3x-4", "3 x4", "1x2x3x4x5", "99999999999999999999", "3y4"):
            self.assertIn(b"is not a shape", self.run_cli("random", shape, code=USAGE).stderr)
        self.assertIn(b"exceeds any memory", self.run_cli("random", "4294967296x4294967296", code=FAILED).stderr)

    def test_wrong_options_are_answered_in_json_too(self):
        for args, verb, says in ((("sgemm", "--nope"), "sgemm", "unknown option '--nope'"),
                                 (("sgemm", "-m", "-5", "a", "b"), "sgemm", "-m takes"),
                                 (("sgemm", "a"), "sgemm", "expected two files"),
                                 (("ping", "--count", "0"), "ping", "asks nothing"),
                                 (("nope",), "nope", "there is no verb 'nope'"),
                                 (("--nope", "sgemm"), "", "unknown option '--nope'")):
            for given in (("--json", *args), (*args, "--json")):
                if args[0] == "--nope" and given[0] == "--json":
                    continue
                if given[0] == "--json":
                    given = (args[0], "--json", *args[1:])
                d = json.loads(self.run_cli(*given, code=USAGE).stdout)
                self.assertEqual((d["schema"], d["verb"], d["ok"], d["exit_status"]), (1, verb, False, USAGE))
                self.assertIn(says, d["error"])
        self.assertEqual(self.run_cli("sgemm", "--nope", code=USAGE).stdout, b"")
        self.assertEqual(self.run_cli("sgemm", "--nope", "--", "--json", code=USAGE).stdout, b"")

    def test_elements_do_not_go_to_a_terminal(self):
        self.save("x.npy", self.matrix(4, 4))
        for options in (("-o", "-"), ("--npy",), ("--npy", "-o", "-")):
            ours, theirs = pty.openpty()
            try:
                r = subprocess.run([harness.KOPS_CLIENT, "transpose", "x.npy", *options], stdout=theirs, stderr=subprocess.PIPE,
                                   env=harness.client_env(self.daemon.socket), cwd=self.folder.name, timeout=600)
                self.assertEqual(r.returncode, FAILED)
                self.assertIn(b"binary elements are not written to a terminal: send them to a file or a pipe", r.stderr)
                os.set_blocking(ours, False)
                self.assertRaises(BlockingIOError, os.read, ours, 1)  # not one byte
            finally:
                os.close(ours)
                os.close(theirs)

    def save_bf16(self, name, bits):
        """As np.save() does where ml_dtypes.bfloat16 is the type: '<V2' is what NumPy calls it."""
        with open(self.path(name), "wb") as f:
            np.lib.format.write_array_header_1_0(f, {"descr": "<V2", "fortran_order": False, "shape": bits.shape})
            f.write(bits.tobytes())

    def test_bf16_of_npy_files(self):
        bits = self.rng.integers(0x3f00, 0x4000, (6, 40)).astype(np.uint16)
        self.save_bf16("x.npy", bits)
        self.run_cli("transpose", "--dtype", "bf16", "x.npy", "-o", "y.npy", "--check")
        y = self.load("y.npy")
        self.assertEqual(y.dtype, np.dtype("V2"))
        np.testing.assert_array_equal(y.view(np.uint16), bits.T)
        with open(self.path("y.npy"), "rb") as f:
            self.assertIn(b"'descr': '<V2'", f.read(128))
        self.run_cli("gemm", "--dtype", "bf16", "x.npy", "y.npy", "-o", "z.npy", "--check")
        with open(self.path("bf16.job"), "w", encoding="ascii") as f:
            f.write("x = load x.npy dtype=bf16\ny = load y.npy dtype=bf16\nz = gemm x y\nsave z w.npy\n")
        self.run_cli("run", "bf16.job", "--check")
        np.testing.assert_array_equal(self.load("z.npy"), self.load("w.npy"))
        r = self.run_cli("transpose", "--dtype", "bf16", "x.npy", "--npy", "-o", "-")
        np.testing.assert_array_equal(np.load(io.BytesIO(r.stdout)), y)
        for args, hint in ((("transpose", "x.npy"), b"say so: --dtype bf16"),
                           (("sgemm", "x.npy", "y.npy"), b"say so: kops-client gemm --dtype bf16"),
                           (("gemm", "--dtype", "f16", "x.npy", "y.npy"), b"say so: --dtype bf16")):
            self.assertIn(hint, self.run_cli(*args, code=FAILED).stderr)
        with open(self.path("open.job"), "w", encoding="ascii") as f:
            f.write("x = load x.npy\ny = transpose x\n")
        self.assertIn(b"say so: dtype=bf16 after the name", self.run_cli("run", "open.job", code=FAILED).stderr)

    def test_bf16_is_that_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            self.skipTest("there is no ml_dtypes; pip has it")
        x = self.matrix(30, 20).astype(ml_dtypes.bfloat16)
        np.save(self.path("x.npy"), x)
        self.run_cli("add", "--dtype", "bf16", "x.npy", "x.npy", "-o", "y.npy", "--check")
        np.testing.assert_array_equal(self.load("y.npy").view(ml_dtypes.bfloat16), x + x)

    def test_big_endian_files(self):
        for dtype in (">f2", ">f4", ">f8"):
            x = self.matrix(7, 5).astype(dtype)
            self.save("x.npy", x)
            self.save("f.npy", np.asfortranarray(x))
            for name in ("x.npy", "f.npy"):
                self.run_cli("transpose", name, "-o", "y.npy", "--check")
                y = self.load("y.npy")
                self.assertEqual(y.dtype, x.dtype.newbyteorder("<"))
                np.testing.assert_array_equal(y, x.T)

    def test_types_that_are_only_moved(self):
        numbers = self.rng.integers(-2**31, 2**31, (5, 7, 6))
        for dtype in ("<i4", ">i4", "<c8", ">c8", "<c16", ">c16"):
            x = numbers.astype(dtype)
            if x.dtype.kind == "c":
                x = (x + 1j * numbers[::-1]).astype(dtype)
            self.save("x.npy", x)
            for order in ("C", "F"):
                np.save(self.path("x.npy"), np.array(x, order=order))
                with self.subTest(dtype=dtype, order=order):
                    r = self.run_cli("transpose", "x.npy", "-o", "y.npy", "--check")
                    self.assertIn(b"210 of 210 elements compared", r.stderr + r.stdout)
                    np.testing.assert_array_equal(self.load("y.npy"), x.swapaxes(1, 2))
            self.assertIn(b"softmax takes", self.run_cli("softmax", "x.npy", code=FAILED).stderr)

    def test_softmax_and_add_of_float64(self):
        x = self.matrix(6, 50, dtype=np.float64)
        self.save("x.npy", x)
        self.run_cli("softmax", "--scale", "0.1", "x.npy", "-o", "y.npy", "--check")
        z = np.exp(0.1 * x)
        np.testing.assert_allclose(self.load("y.npy"), z / z.sum(-1, keepdims=True), rtol=1e-14)
        self.run_cli("add", "x.npy", "y.npy", "-o", "s.npy", "--check")
        np.testing.assert_array_equal(self.load("s.npy"), x + self.load("y.npy"))

    def test_complex_products(self):
        for dtype, name, part in (np.complex64, "c64", 1e-5), (np.complex128, "c128", 1e-13):
            a, b = (self.matrix(9, 5) + 1j * self.matrix(9, 5)).astype(dtype), (self.matrix(9, 4) + 1j * self.matrix(9, 4)).astype(dtype)
            self.save("a.npy", a)
            self.save("b.npy", b)
            self.run_cli("gemm", "--trans-a", "--conj_a", "a.npy", "b.npy", "--alpha", "2", "--alpha_imag", "-1", "-o", "c.npy", "--check")
            c = self.load("c.npy")
            self.assertEqual(c.dtype, dtype)
            np.testing.assert_allclose(c, (2 - 1j) * (a.conj().T @ b), rtol=0, atol=30 * part)
            self.run_cli("run", "-", "--check", input=b"a = load a.npy\nb = load b.npy\nc = load c.npy\n"
                         b"d = gemm a' b conj_b=yes c=c beta=0.5 beta_imag=1\nsave d d.npy\n")
            np.testing.assert_allclose(self.load("d.npy"), a.T @ b.conj() + (0.5 + 1j) * c, rtol=0, atol=100 * part)
            self.run_cli("random", "20x30", "--dtype", name, "-o", "r.bin")
            self.run_cli("gemm", "--dtype", name, "-n", "20", "--trans-b", "r.bin", "r.bin", "-o", "y.npy", "--check")
            self.assertEqual(self.load("y.npy").shape, (20, 20))
        r = self.run_cli("gemm", "--trans-a", "a.npy", "b.npy", "--activation", "relu", code=FAILED)
        self.assertIn(b"complex products take no activation", r.stderr)
        r = self.run_cli("gemm", "--trans-a", "a.npy", "b.npy", "--beta_imag", "1", code=USAGE)
        self.assertIn(b"beta_imag", r.stderr)
        self.run_cli("gemm", "--trans-a", "a.npy", "b.npy", "-c", "c.npy", "-o", "e.npy", "--check")
        np.testing.assert_allclose(self.load("e.npy"), a.T @ b + c, rtol=0, atol=100 * part)
        self.save("f.npy", self.matrix(4, 4))
        r = self.run_cli("gemm", "f.npy", "f.npy", "--alpha_imag", "1", code=FAILED)
        self.assertIn(b"only products of c64 and c128 take it", r.stderr)

    def test_types_that_do_not_fit(self):
        self.save("d.npy", self.matrix(4, 4).astype(np.complex64))
        self.save("h.npy", self.matrix(4, 4, dtype=np.float16))
        self.save("s.npy", self.matrix(4, 4))
        self.run_cli("transpose", "d.npy", "-o", "y.npy", "--check")
        r = self.run_cli("softmax", "d.npy", code=FAILED)
        self.assertIn(b"softmax takes f32, f64, f16, bf16, not c64", r.stderr)
        r = self.run_cli("add", "h.npy", "s.npy", code=FAILED)
        self.assertIn(b"add takes inputs of one dtype, not f16 and f32", r.stderr)
        r = self.run_cli("softmax", "--dtype", "bf16", "h.npy", code=FAILED)
        self.assertIn(b"--dtype bf16 is not what h.npy holds: f16", r.stderr)

    def test_run(self):
        x, w = self.matrix(10, 7), self.matrix(4, 7)
        self.save("x.npy", x)
        self.save("w.npy", w)
        with open(self.path("job.txt"), "w", encoding="ascii") as f:
            f.write("x = load x.npy\nw = load w.npy\n# a comment\ns = gemm x w' alpha=3\np = softmax s\n"
                    "save p p.npy\nsave s s.bin\n")
        self.run_cli("run", "job.txt", "--check")
        s = 3 * x.astype(np.float64) @ w.T
        z = np.exp(s)
        self.near(self.load("p.npy"), z / z.sum(-1, keepdims=True), 1e-6)
        self.near(self.load("s.bin", (10, 4)), s)
        r = self.run_cli("run", "-", input=b"x = load x.npy\nt = transpose x\n")
        np.testing.assert_array_equal(np.frombuffer(r.stdout, np.float32).reshape(7, 10), x.T)
        self.run_cli("run", "-", input=b"x = load x.npy\ny = frobnicate x\n", code=FAILED)

    def test_questions(self):
        (device,) = self.json("devices")["devices"]
        self.assertEqual(device["memory_used_bytes"] + device["memory_free_bytes"], device["memory_bytes"])
        self.assertTrue(0 <= device["utilization"] <= 1)
        kernels = self.json("ops")["kernels"]
        self.assertIn("gemm", {k["op"] for k in kernels})
        before = self.json("stats")["devices"][0]["jobs_done"]
        self.save("a.npy", self.matrix(3, 3))
        self.run_cli("sgemm", "a.npy", "a.npy")
        self.assertEqual(self.json("stats")["devices"][0]["jobs_done"], before + 1)
        self.assertTrue(self.json("ping", "--count", "20"))
        self.assertIn("kopsd", self.json("version")["daemon"])
        self.assertRegex(self.run_cli("devices").stdout, rb"\ncpu +[\d.]+ .iB +[\d.]+/[\d.]+ .iB +\d+%  ")
        for verb in ("ops", "stats", "ping", "version", "sessions", "trace"):
            self.run_cli(verb)

    def test_who_uses_kopsd(self):
        """Users with stats, sessions and the trace: in JSON, and as a person sees them."""
        name = "a\x1b[2J\x9b\u202eb" + "é" * 20  # a terminal must not see this
        c = self.client(name=name)
        a = c.import_new(256)
        copy = wire.copy(wire.view(a, [8]), wire.view(a, [8], offset=128))
        occupier, ids = self.occupy(50)
        self.refused("DEADLINE", c.submit, copy, deadline_us=1)
        for job in ids:
            occupier.wait(job)
        kernel = c.submit([copy] * 2)["ops"][0]["kernel"]
        user = next(u for u in self.json("stats")["users"] if u["uid"] == os.geteuid())
        self.assertGreaterEqual(user["usage"]["jobs_done"], 1)
        self.assertEqual(set(user["usage"]), {"jobs_done", "jobs_failed", "flops", "bytes", "queue_us", "total_us",
                                              "device_us", "p50_us", "p99_us"})
        session = next(s for s in self.json("sessions")["sessions"] if s["client"] == name)
        self.assertNotRegex(self.run_cli("sessions", "--json").stdout.decode(), "[\x1b\x9b\u202e]")
        self.assertEqual((session["pid"], session["user"]), (os.getpid(), user["user"]))
        self.assertEqual((session["mapped_bytes"], session["resident_bytes"]), (4096, 0))
        self.assertEqual((session["usage"]["jobs_done"], session["usage"]["jobs_failed"]), (1, 1))
        jobs = self.json("trace", "-n", "4")["jobs"]
        late, copied = [j for j in jobs if j["session"] == session["session"]]
        self.assertEqual((copied["op"], copied["kernel"], copied["ops"], copied["ok"], copied["error"]),
                         ("copy", kernel, 2, True, None))
        self.assertEqual((copied["dtype"], copied["shape"]), ("f32", [8]))
        self.assertFalse(late["ok"])
        self.assertIn("deadline", late["error"])
        text = self.run_cli("sessions").stdout.decode()
        self.assertIn(f"{os.getpid()} a?[2J??b" + "é" * 7 + "… ", text)
        self.assertNotIn("\x1b", text)
        lines = self.run_cli("trace", "-n", "4").stdout.decode().splitlines()
        self.assertRegex(lines[4], rf"copy f32 8 \+1 +{kernel} .*done$")
        self.assertRegex("\n".join(lines[1:4]), "copy f32 8 .*deadline")  # in the order of the document
        self.assertEqual(len(lines), 5)
        self.assertIn(user["user"], self.run_cli("stats").stdout.decode())
        self.run_cli("trace", "-f", "--json", code=USAGE)

    def test_the_trace_follows(self):
        """Each job once, in order, until its reader goes."""
        c = self.client()
        a = c.import_new(256)
        process = subprocess.Popen([harness.KOPS_CLIENT, "trace", "-f", "-n", "0"], stdout=subprocess.PIPE,
                                   env=harness.client_env(self.daemon.socket), text=True)
        process.stdout.readline()
        before = self.json("trace", "-n", "1")["jobs"]
        for n in range(1, 4):
            for _ in range(n):
                c.submit([wire.copy(wire.view(a, [8]), wire.view(a, [8], offset=128))] * (60 + n))
            for _ in range(n):
                while f" +{59 + n} " not in (line := process.stdout.readline()):
                    self.assertTrue(line)
        self.assertEqual(self.json("trace", "-n", "1")["jobs"][0]["number"] - (before[0]["number"] if before else 0), 6)
        process.stdout.close()
        c.submit(wire.copy(wire.view(a, [8]), wire.view(a, [8], offset=128)))
        self.assertEqual(process.wait(10), FAILED)

    def test_help(self):
        verbs = ("sgemm", "gemm", "softmax", "transpose", "add", "copy", "reduce", "multiply", "layer_norm", "gather", "rms_norm", "subtract", "unary", "arg_reduce", "top_k", "search", "cholesky", "triangular_solve", "lu", "run", "random", "ping", "devices", "ops", "stats",
                 "sessions", "trace", "load", "buffers", "unload", "tune", "version")
        text = self.run_cli("--help").stdout.decode()
        for verb in verbs:
            self.assertIn(verb, text)
            its = self.run_cli(verb, "-h").stdout
            self.assertIn(f"Usage: kops-client {verb}", its.decode())
            self.assertEqual(self.run_cli("help", verb).stdout, its)
        for words in ["help"], ["help", "help"], ["help", "-h"], ["help", "--help"]:
            self.assertEqual(self.run_cli(*words).stdout, self.run_cli("-h").stdout)
        self.assertIn(b"did you mean 'reduce'?", self.run_cli("help", "redcue", code=USAGE).stderr)
        self.assertIn(b"did you mean 'help'?", self.run_cli("hlep", code=USAGE).stderr)


class ExitCodes(CliTest):
    def test_usage(self):
        self.save("a.npy", self.matrix(3, 3))
        for args in [(), ("frobnicate",), ("sgemm",), ("sgemm", "a.npy"), ("sgemm", "a.npy", "a.npy", "a.npy"),
                     ("sgemm", "--what", "a.npy", "a.npy"), ("sgemm", "-m", "x", "a.npy", "a.npy"),
                     ("sgemm", "--alpha", "one", "a.npy", "a.npy"), ("sgemm", "--priority", "top", "a.npy", "a.npy"),
                     ("ping", "surplus"), ("softmax", "a.npy", "--timeout", "soon")]:
            with self.subTest(args=args):
                self.run_cli(*args, code=USAGE)

    def test_mistyped_words_are_answered_with_the_nearest(self):
        self.save("a.npy", self.matrix(3, 3))
        for args, says in [(("redcue", "a.npy"), "no verb 'redcue'; did you mean 'reduce'?"),
                           (("frobnicate",), "no verb 'frobnicate'; `kops-client -h` lists them"),
                           (("foo",), "no verb 'foo'; `kops-client -h` lists them"),
                           (("bench",), "no verb 'bench'; kops-bench(1) measures"),
                           (("help", "bench"), "no verb 'bench'; kops-bench(1) measures"),
                           (("softmax", "--scael", "2", "a.npy"), "unknown option '--scael'; did you mean '--scale'?"),
                           (("softmax", "--scale", "big", "a.npy"), "--scale takes a number, not 'big'"),
                           (("reduce", "--kind", "median", "a.npy"), "--kind takes sum, max, mean, min or prod, not 'median'")]:
            with self.subTest(args=args):
                self.assertIn(says, self.run_cli(*args, code=USAGE).stderr.decode())

    def test_cannot_connect(self):
        self.save("a.npy", self.matrix(3, 3))
        stale = self.path("stale.sock")
        s = wire.socket.socket(wire.socket.AF_UNIX, wire.socket.SOCK_SEQPACKET)
        s.bind(stale)
        s.close()
        for path in ("/nowhere/kopsd.sock", stale, self.path("a.npy")):
            for verb in (("ping",), ("sgemm", "a.npy", "a.npy"), ("stats",)):
                r = self.run_cli(*verb, "--timeout", "1s", socket=path, code=CONNECT)
                self.assertIn(path.encode(), r.stderr)

    @unittest.skipIf(os.geteuid() != 0, "only root can play another user")
    def test_permission_denied(self):
        def drop():
            os.setgroups([])
            os.setresgid(61001, 61001, 61001)
            os.setresuid(61001, 61001, 61001)
        binary = self.path("kops-client")
        with open(harness.KOPS_CLIENT, "rb") as f, open(binary, "wb") as g:
            g.write(f.read())
        os.chmod(binary, 0o755)
        libraries = os.path.dirname(os.path.dirname(os.path.realpath(harness.KOPS_CLIENT)))
        reachable = subprocess.run([binary, "version"], preexec_fn=drop, capture_output=True, cwd="/")
        if reachable.returncode not in (OK, CONNECT):
            self.skipTest(f"another user cannot read the libraries in {libraries}")
        r = subprocess.run([binary, "ping", "--socket", self.daemon.socket, "--timeout", "1s"], preexec_fn=drop,
                           capture_output=True, cwd="/", timeout=600)
        self.assertEqual(r.returncode, CONNECT, r.stderr)
        self.assertIn(b"ermission", r.stderr)

    def test_timeout(self):
        other, ids = self.occupy(3000)
        self.save("a.npy", self.matrix(3, 3))
        self.run_cli("sgemm", "a.npy", "a.npy", "--timeout", "300ms", "-o", "late.npy", code=TIMEOUT)
        self.assert_busy()  # so it waited no longer
        self.assertFalse(os.path.exists(self.path("late.npy")))
        for i in ids:
            other.wait(i)

    def test_refused_by_the_daemon(self):
        self.save("a.npy", self.matrix(3, 3))
        r = self.run_cli("sgemm", "a.npy", "a.npy", "--device", "gpu9", code=FAILED)
        self.assertIn(b"gpu9", r.stderr)
        r = self.run_cli("sgemm", "a.npy", "a.npy", "--kernel", "warp", code=FAILED)
        self.assertIn(b"openblas", r.stderr)
        r = self.run_cli("sgemm", "a.npy", "a.npy", "--kernel", "warp", "--json", code=FAILED)
        self.assertFalse(json.loads(r.stdout)["ok"])

    def test_special_values_pass_the_check(self):
        a = self.matrix(4, 4)
        a[0, 0], a[1, 1], a[2, 2] = np.nan, np.inf, -np.inf
        self.save("a.npy", a)
        self.run_cli("sgemm", "a.npy", "a.npy", "--check", "-o", "c.npy")


class Trace(CliTest):
    def setUp(self):
        """A session that sends jobs; those of other tests are left out."""
        super().setUp()
        self.latest = self.control.trace()[0]["number"] if self.control.trace() else 0
        self.sender = self.client(name="sender")
        a = self.sender.import_new(4096)
        matrix = lambda at: wire.view(a, [8, 8], offset=at)
        self.copy = wire.copy(matrix(0), matrix(1024))
        self.gemm = wire.gemm(matrix(0), matrix(0), matrix(2048), kernel="reference")

    def jobs(self, *args):
        return [j for j in self.json("trace", "-n", "0", *args)["jobs"] if j["number"] > self.latest]

    def test_filters(self):
        for op in (self.copy, self.gemm, [self.gemm, self.copy], self.copy):
            self.sender.submit(op)
        slow = self.sender.submit(self.slow_op(self.sender, 200))["total_us"]
        ops = lambda *args: [j["op"] for j in self.jobs(*args)]
        sent = ops("--longer-than", "0")
        self.assertEqual([op for op in sent if op == "copy"], ops("--op", "copy"))
        self.assertEqual(ops("--op", "copy"), ["copy", "copy"])
        self.assertEqual(set(ops("--op", "gemm")), {"gemm"})
        for user in (str(os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name):
            self.assertEqual(ops("--user", user), sent)
        self.assertEqual(ops("--user", str(os.geteuid() + 1)), [])
        longer = self.jobs("--longer-than", "100ms")
        self.assertEqual(longer[-1]["total_us"], slow)
        self.assertTrue(all(j["total_us"] >= 100e3 for j in longer))
        self.assertEqual(ops("--longer-than", f"{slow - 1}us", "--op", "gemm")[-1], "gemm")
        # The latest of those that are wanted, in the order of all lists.
        numbers = [j["number"] for j in self.json("trace", "-n", "2", "--op", "copy")["jobs"]]
        self.assertEqual(numbers, [j["number"] for j in self.jobs("--op", "copy")][-2:])
        lines = self.run_cli("trace", "-n", "1", "--op", "copy").stdout.decode().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn(" copy f32 8×8 ", lines[1])
        for args, says in ((("--op", "gem"), "there is no op 'gem'"), (("--user", "no-such-user"), "no-such-user"),
                           (("--longer-than", "soon"), "--longer-than takes a time"), (("-f", "--perfetto", "-"), "--follow"),
                           (("--json", "--perfetto", "-"), "two documents")):
            self.assertIn(says, self.run_cli("trace", *args, code=USAGE).stderr.decode())

    def test_follow_with_a_filter(self):
        process = subprocess.Popen([harness.KOPS_CLIENT, "trace", "-f", "-n", "1", "--op", "copy"], stdout=subprocess.PIPE,
                                   env=harness.client_env(self.daemon.socket), text=True)
        self.sender.submit(self.copy)
        process.stdout.readline()
        for _ in range(3):
            self.sender.submit(self.gemm)
            self.sender.submit([self.copy] * 3)
        for _ in range(3):
            while " copy f32 8×8 +2 " not in (line := process.stdout.readline()):
                self.assertIn(" copy f32 8×8 ", line)
        process.kill()
        process.wait()
        process.stdout.close()

    def nested(self, slices):
        """Of one track: each slice ends before the next begins, or lies in it."""
        open_until = []
        for s in sorted(slices, key=lambda s: (s["ts"], -s["dur"])):
            end = s["ts"] + s["dur"]
            while open_until and open_until[-1] <= s["ts"] + 5e-4:
                open_until.pop()
            self.assertTrue(not open_until or end <= open_until[-1] + 5e-4, s)
            open_until.append(end)

    def test_for_perfetto(self):
        """Trace events as chrome://tracing and ui.perfetto.dev take them, of jobs that wait, overlap and fail."""
        _, ids = self.occupy(200)
        late = self.sender.start_submit(self.copy, deadline_us=1)
        both = [self.sender.start_submit([self.gemm, self.copy], queue=q) for q in (0, 0, 1, 2)]
        for job in both:
            self.sender.wait(job)
        with self.assertRaises(wire.Refused):
            self.sender.wait(late)
        self.assertEqual(self.run_cli("trace", "--perfetto", "jobs.json").stdout, b"")
        with open(self.path("jobs.json"), encoding="utf-8") as f:
            document = json.load(f)
        self.assertEqual(set(document), {"displayTimeUnit", "traceEvents"})
        events = document["traceEvents"]
        self.assertEqual({e["ph"] for e in events}, {"M", "X"})
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(set(groups.values()), {"devices", "sessions"})
        slices = [e for e in events if e["ph"] == "X"]
        tracks = {}
        for s in slices:
            self.assertGreater(s["dur"], 0)
            self.assertLess(abs(s["ts"] / 1e6 - time.monotonic()), 3600)
            tracks.setdefault((s["pid"], s["tid"]), []).append(s)
        self.assertEqual(set(tracks), set(names))
        for of_track in tracks.values():
            self.nested(of_track)
        own = next(s for s in self.control.list_sessions() if s["client"] == "sender")["session"]
        self.assertTrue(any(n.startswith(f"session {own}: ") and n.endswith(" sender") for n in names.values()), names)
        self.assertIn("cpu", names.values())
        traced = {j["number"]: j for j in self.json("trace", "-n", "0")["jobs"]}
        jobs = [s for s in slices if "args" in s and groups[s["pid"]] == "sessions"]
        self.assertEqual({s["args"]["number"] for s in jobs}, set(traced))
        for s in jobs:
            job = traced[s["args"]["number"]]
            self.assertAlmostEqual(s["dur"], job["total_us"], delta=0.01)
            self.assertAlmostEqual(s["ts"] + s["dur"], job["ended_ns"] / 1e3, delta=0.01)
            inside = [p for p in tracks[s["pid"], s["tid"]] if "args" not in p and s["ts"] - 1e-3 <= p["ts"] < s["ts"] + s["dur"]]
            phases = {p["name"]: p["dur"] for p in inside}
            for phase in ("queue", "compute"):
                self.assertAlmostEqual(phases.get(phase, 0), job[f"{phase}_us"], delta=0.01)
        self.assertEqual({s["name"] for s in jobs if s["args"]["session"] == own}, {"gemm f32 8×8×8 +1", "copy f32 8×8"})
        on_devices = {s["args"]["number"] for s in slices if "args" in s and groups[s["pid"]] == "devices"}
        self.assertEqual(on_devices, {n for n, j in traced.items() if j["ok"]})  # the late one never started
        one = json.loads(self.run_cli("trace", "--perfetto", "-", "-n", "1", "--op", "gemm").stdout)
        self.assertEqual(len({e["args"]["number"] for e in one["traceEvents"] if "number" in e.get("args", {})}), 1)
        self.run_cli("trace", "--perfetto", "no/such/folder/jobs.json", code=FAILED)


class Waiting(CliTest):
    """On a terminal, which sees how far a long job is."""

    def slow_matrix(self, seconds):
        """The name of a file whose product with itself takes the kernel `reference` about so long, and its rows."""
        with self.daemon.connect() as c:
            self.slow_op(c, 1)  # measures
        n = round((64 * 64 * self._rate[self.daemon.pid] * seconds * 1e6) ** (1 / 3))
        self.save("slow.npy", self.matrix(n, n))
        return "slow.npy", n

    def open(self, *args, term="xterm", program=(harness.KOPS_CLIENT,)):
        """kops-client, whose stderr is a terminal of its own that also sends signals; program: what runs it."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen([*program, *args], stdin=follower, stdout=subprocess.DEVNULL,
                                        stderr=follower, cwd=self.folder.name, start_new_session=True,
                                        env={**harness.client_env(self.daemon.socket), "TERM": term},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(follower)
        self.terminal, self.bytes, self.text = leader, b"", ""
        self.addCleanup(os.close, leader)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)

    def read(self):
        """False at its end."""
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.bytes += data
        self.text = self.bytes.decode(errors="replace")  # the last character may not be all there
        return bool(data)

    def see(self, words):
        while not re.search(words, self.text):
            self.assertTrue(self.read(), self.text)

    def end(self):
        while self.read():
            pass
        return self.process.wait(60)

    def test_a_running_job(self):
        name, n = self.slow_matrix(3)
        self.open("sgemm", name, name, "--kernel", "reference", "-o", "y.npy")
        self.see(rf"\r\x1b\[K\[#*\.*\] \d+ %, [\d.]+ m?s left, gemm f32 {n}×{n}×{n} on cpu")
        self.assertEqual(self.end(), OK)
        self.assertTrue(os.path.exists(self.path("y.npy")))
        # The line is erased before the receipt comes, and it was never wider than the terminal.
        self.assertRegex(self.text, r"[^\n]\r\x1b\[Kcpu: queue")
        shown = self.text[:self.text.index("cpu: queue")]
        self.assertNotIn("\n", shown)
        self.assertTrue(all(len(line) < 80 for line in shown.split("\r\x1b[K")))

    def test_a_job_that_waits(self):
        other, ids = self.occupy(4000)
        self.save("a.npy", self.matrix(3, 3))
        self.open("sgemm", "a.npy", "a.npy", "-o", "y.npy")
        self.see(r"\r\x1b\[Kwaiting behind [12] jobs?, [\d.]+ m?s")
        self.assertEqual(self.end(), OK)
        for i in ids:
            other.wait(i)

    def test_a_large_file(self):
        """Several threads read it."""
        x = self.matrix(4001, 4201)
        self.save("large.npy", x)
        self.assertEqual(self.run_cli("transpose", "large.npy", "-o", "turned.npy").returncode, OK)
        self.assertTrue(np.array_equal(np.load(self.path("turned.npy")), x.T))

    def test_a_slow_file(self):
        os.mkfifo(self.path("slow"))
        self.save("a.npy", self.matrix(2000, 3000))

        def take():
            with open(self.path("slow"), "rb", buffering=0) as f:
                while f.read(1 << 18):
                    time.sleep(0.01)
        for seen in (True, False):
            reader = threading.Thread(target=take)
            reader.start()
            self.open("transpose", "a.npy", "-o", "slow", *([] if seen else ["--quiet"]))
            if seen:
                self.see(r"\r\x1b\[K\[#+\.*\] \d+ %, [\d.]+ [kMG]B/s, [\d.]+ m?s left, writing slow")
            self.assertEqual(self.end(), OK)
            reader.join()
        self.assertEqual(self.text, "")

    def test_control_c(self):
        """The job is cancelled, and nothing remains: neither a file nor the line."""
        name, _ = self.slow_matrix(20)
        before = os.listdir(self.folder.name)
        self.open("sgemm", name, name, "--kernel", "reference", "-o", "cut.npy")
        self.see(" %, ")
        os.write(self.terminal, b"\x03")
        self.assertEqual(self.end(), -signal.SIGINT)  # 128 + 2 to a shell
        self.assertRegex(self.text, r"\r\x1b\[K$")
        self.assertEqual(os.listdir(self.folder.name), before)
        self.assertTrue(harness.eventually(lambda: not self.control.any_running()))

    def test_control_c_between_blocks(self):
        self.save("x.npy", self.matrix(9001, 2003))
        self.save("w.npy", self.matrix(2003, 2003))
        before = sorted(os.listdir(self.folder.name))
        self.open("gemm", "x.npy", "w.npy", "--kernel", "reference", "-o", "cut.npy")
        self.see(r"\r\x1b\[K\[#*\.*\] \d+ %, [\d.]+ [kMG]?B/s, [\d.]+ m?s left, gemm to cut.npy")
        self.assertNotEqual(sorted(os.listdir(self.folder.name)), before)
        os.write(self.terminal, b"\x03")
        self.assertEqual(self.end(), -signal.SIGINT)
        self.assertRegex(self.text, r"\r\x1b\[K$")
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)
        self.assertTrue(harness.eventually(lambda: not self.control.any_running()))

    def test_kopsd_stops_answering(self):
        name, _ = self.slow_matrix(2)
        self.open("sgemm", name, name, "--kernel", "reference", "-o", "y.npy")
        self.see(" %, ")
        self.daemon.signal(signal.SIGSTOP)
        try:
            self.see(r"\r\x1b\[Kkopsd has not answered for [\d.]+ m?s")
        finally:
            self.daemon.signal(signal.SIGCONT)
        self.assertEqual(self.end(), OK)

    def test_kopsd_does_not_answer_at_all(self):
        self.save("a.npy", self.matrix(3, 3))
        self.daemon.signal(signal.SIGSTOP)
        try:
            self.open("sgemm", "a.npy", "a.npy", "-o", "y.npy")
            self.see(r"^\r\x1b\[Kwaiting for kopsd to answer$")
        finally:
            self.daemon.signal(signal.SIGCONT)
        self.assertEqual(self.end(), OK)
        self.assertRegex(self.text, r"^\r\x1b\[Kwaiting for kopsd to answer\r\x1b\[K")

    def test_where_nobody_watches(self):
        name, _ = self.slow_matrix(1)
        args = "sgemm", name, name, "--kernel", "reference", "-o", "y.npy"
        self.assertNotIn(b"\r", self.run_cli(*args).stderr)
        self.open(*args, term="dumb")
        self.assertEqual(self.end(), OK)
        self.assertNotIn("\x1b", self.text)
        self.open(*args, "--quiet")
        self.assertEqual(self.end(), OK)
        self.assertEqual(self.text, "")
        self.open(*args, program=("sh", "-c", 'set -m; "$@" & wait', "sh", harness.KOPS_CLIENT))  # in the background
        self.assertEqual(self.end(), OK)
        self.assertNotIn("\x1b", self.text)
        self.assertIn("cpu: queue", self.text)


class LargeFiles(CliTest):
    """Files that kops-client reads, computes and writes block by block, 32 MiB at a time or more."""

    def compute(self, *args, blocks=True):
        """The result in y.npy."""
        receipt = self.json(*args, "-o", "y.npy")["receipt"]
        self.assertEqual(receipt["jobs"] > 2, blocks, receipt)
        return self.load("y.npy")

    def test_rows(self):
        x = self.matrix(9001, 2003)
        self.save("x.npy", x)
        self.save("x.bin", x)
        save_npy(self.path("big_endian.npy"), x.astype(">f4"), (1, 0))
        self.save("row.npy", x[0])
        self.save("column.npy", x[:, :1])
        self.near(self.compute("add", "x.npy", "x.npy"), x + x, 0)
        self.near(self.compute("add", "-n", "2003", "x.bin", "big_endian.npy"), x + x, 0)
        self.near(self.compute("subtract", "x.npy", "row.npy"), x - x[0], 0)
        self.near(self.compute("multiply", "column.npy", "x.npy"), x[:, :1] * x, 0)
        self.near(self.compute("add", "x.npy", "x.npy", "--check", blocks=False), x + x, 0)
        e = np.exp(x.astype(np.float64))
        self.near(self.compute("softmax", "x.npy"), e / e.sum(axis=1, keepdims=True), 1e-6)
        x64 = x.astype(np.float64)
        self.near(self.compute("reduce", "x.npy", "--kind", "sum"), x64.sum(axis=1))
        self.json("add", "-n", "2003", "x.bin", "x.npy", "-o", "y.bin")
        self.near(self.load("y.bin", x.shape), x + x, 0)

    def test_stacks(self):
        """The first axis is cut, if the op lets it; of one index the next."""
        for shape in [(1, 5003, 3001), (57, 301, 1009), (5, 3, 1001, 1003)]:
            x = self.matrix(*shape)
            self.save("x.npy", x)
            self.near(self.compute("add", "x.npy", "x.npy"), x + x, 0)
        x, w = self.matrix(40, 500, 900), self.matrix(900, 33)
        self.save("x.npy", x)
        self.save("w.npy", w)
        self.near(self.compute("gemm", "x.npy", "w.npy"), x.astype(np.float64) @ w, 1e-3)

    def test_other_orders(self):
        """A file that has not its rows one after another is read whole, and the result is cut all the same."""
        x = self.matrix(4000, 5001)
        self.save("x.npy", x)
        self.save("f.npy", np.asfortranarray(x))
        self.near(self.compute("subtract", "x.npy", "f.npy"), x - x, 0)
        self.near(self.compute("transpose", "x.npy"), x.T, 0)

    def test_products(self):
        a, b, c = self.matrix(90001, 203), self.matrix(203, 250), self.matrix(90001, 250)
        want = a.astype(np.float64) @ b
        self.save("a.npy", a)
        self.save("turned.npy", np.ascontiguousarray(a.T))
        self.save("b.npy", b)
        self.save("bias.npy", c[0])
        self.near(self.compute("gemm", "a.npy", "b.npy"), want)
        self.near(self.compute("gemm", "--trans-a", "turned.npy", "b.npy"), want)
        self.near(self.compute("gemm", "a.npy", "b.npy", "--bias", "bias.npy"), want + c[0])
        for order in "CF":
            self.save("c.npy", np.asarray(c, order=order))
            self.near(self.compute("gemm", "a.npy", "b.npy", "-c", "c.npy", "--beta", "0.5"), want + 0.5 * c)
            self.near(self.load("c.npy"), c, 0)
        long, many = self.matrix(1, 1000), self.matrix(25001, 1000)
        self.save("long.npy", long)
        self.save("many.npy", many)
        self.near(self.compute("gemm", "--trans-b", "long.npy", "many.npy"), long.astype(np.float64) @ many.T)
        s = self.matrix(3000, 3000)  # one file as both, of which one is needed whole
        self.save("s.npy", s)
        self.near(self.compute("gemm", "s.npy", "s.npy", blocks=False), s.astype(np.float64) @ s, 1e-3)

    def test_gather(self):
        x, indices = self.matrix(5000, 3000), self.rng.integers(0, 5000, 9001).astype(np.int32)
        self.save("x.npy", x)
        self.save("indices.npy", indices)
        self.near(self.compute("gather", "x.npy", "indices.npy"), x[indices], 0)

    def test_a_failure_leaves_no_file(self):
        x = self.matrix(7000, 2000)
        self.save("x.npy", x)
        before = sorted(os.listdir(self.folder.name))
        for args, code in [(("--kernel", "no_such_kernel"), FAILED), (("--timeout", "1ms"), TIMEOUT)]:
            self.run_cli("softmax", "x.npy", "-o", "none.npy", *args, code=code)
            self.assertEqual(sorted(os.listdir(self.folder.name)), before)

    def test_a_full_disk(self):
        self.save("x.npy", self.matrix(7000, 2000))
        before = sorted(os.listdir(self.folder.name))
        r = self.run_cli("softmax", "x.npy", "-o", "none.npy", code=FAILED,
                         preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                             resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))))
        self.assertIn(b"cannot write none.npy", r.stderr)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)


@unittest.skipUnless(DATA, "KOPS_TEST_DATA is not set: the digits are not there")
class Digits(CliTest):
    """softmax(100 X Tᵀ) Y names 1761 of 1797 handwritten digits rightly."""

    def data(self, name):
        return os.path.join(os.path.abspath(DATA), f"digits_{name}.npy")

    def check(self, name):
        got = np.load(self.path(name)).argmax(1)
        right = int((got == np.load(self.data("test_labels"))).sum())
        self.assertLessEqual(abs(right - 1761), 1, f"{right} of 1797 right")

    def test_one_job_of_three_ops(self):
        with open(self.path("digits.txt"), "w", encoding="utf-8") as f:
            f.write(f"x = load {self.data('test')}\nt = load {self.data('train')}\n"
                    f"y = load {self.data('train_onehot')}\ns = gemm x t' alpha=100\np = softmax s\n"
                    "c = gemm p y\nsave c job.npy\n")
        before = self.control.stats()["devices"][0]["jobs_done"]
        self.run_cli("run", "digits.txt")
        self.assertEqual(self.control.stats()["devices"][0]["jobs_done"], before + 1)
        self.check("job.npy")

    def test_three_commands(self):
        self.run_cli("sgemm", "--trans-b", "--alpha", "100", self.data("test"), self.data("train"), "-o", "s.npy",
                     "--check")
        self.run_cli("softmax", "s.npy", "-o", "p.npy", "--check")
        self.run_cli("sgemm", "p.npy", self.data("train_onehot"), "-o", "c.npy", "--check")
        self.check("c.npy")


if __name__ == "__main__":
    if not os.access(harness.KOPS_CLIENT, os.X_OK):
        print("skipped: KOPS_TEST_CLIENT does not name kops-client")
        raise SystemExit(77)
    harness.main()
