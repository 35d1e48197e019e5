"""bench/plot draws recorded figures and CSV, with the roof that belongs to each kernel; bench/tables notices old plots."""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PLOT = ROOT / "bench" / "plot"
RECORDED = ROOT / "bench" / "recorded"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
from recording import files


def plot(*words):
    return subprocess.run([sys.executable, PLOT, *map(str, words)], capture_output=True, text=True)


class Plots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kops-plot-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def draw(self, source, *words):
        out = self.folder / "out.svg"
        r = plot(source, "-o", out, *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return out.read_text(encoding="utf-8")

    def test_roofs_are_those_of_the_arithmetic(self):
        svg = self.draw(RECORDED / "h200-gemm.json")
        tensor = files.read(RECORDED / "h200-tensor.json")["ceilings"]
        fma = files.read(RECORDED / "h200-gemm.json")["ceilings"]["fma_gflops_per_s"]
        for name, gflops in (("f32 FMA", fma), ("f16 ÷ 3", tensor["f16_gflops_per_s"] / 3),
                             ("bf16 ÷ 6", tensor["bf16_gflops_per_s"] / 6)):
            self.assertIn(f"roof, {name}: {gflops * 1e-3:.3g} TFLOP/s", svg)
        svg = self.draw(RECORDED / "h200-gemm-tf32.json")
        self.assertIn(f"roof, tf32 tensor cores: {tensor['tf32_gflops_per_s'] * 1e-3:.3g} TFLOP/s", svg)
        self.assertNotIn("FMA", svg)
        for text in ("cuBLAS", "wgmma", "× cuBLAS", "% of the roof"):
            self.assertIn(text, svg)

    def test_memory_and_cache_have_a_roof_each(self):
        svg = self.draw(RECORDED / "h200-softmax.json")
        ceilings = files.read(RECORDED / "h200-softmax.json")["ceilings"]
        for name in "memory", "cache":
            self.assertIn(f"roof, {name}: {ceilings[f'{name}_gbytes_per_s'] * 1e-3:.3g} TB/s", svg)
        for text in ("PyTorch", "plain copy", "fused"):
            self.assertIn(text, svg)

    def test_nothing_is_above_its_roof(self):
        for name in "reduce", "reduce-bf16", "softmax", "gemm", "gemm-bf16", "transpose", "add", "copy":
            svg = self.draw(RECORDED / f"h200-{name}.json")
            shares = [int(n) for n in re.findall(r"(\d+) % of the roof", svg)]
            self.assertTrue(shares and max(shares) <= 100, name)

    @staticmethod
    def lines(svg):
        """The points of every line that is drawn: curves, roofs, axes and grids."""
        return [[tuple(map(float, p.split())) for p in re.split(r"[ML]", path) if p.strip()]
                for path in re.findall(r'<g id="line2d_\d+">\s*<path d="([^"z]*)"', svg)]

    def test_lines_join_shapes_of_one_row_length(self):
        run = files.read(RECORDED / "h200-reduce.json")
        shapes = {r["shape"] for r in run["rows"]}
        alike = {s for s in shapes if s.endswith("x1024")}
        self.assertGreater(len(shapes), len(alike))
        self.assertEqual(max(map(len, self.lines(self.draw(RECORDED / "h200-reduce.json")))), len(alike))
        squares = {r["shape"] for r in files.read(RECORDED / "h200-transpose.json")["rows"]}
        self.assertEqual(max(map(len, self.lines(self.draw(RECORDED / "h200-transpose.json")))), len(squares))

    def test_labels_are_beside_the_curves(self):
        svg = self.draw(RECORDED / "h200-gemm.json")
        (label,) = set(re.findall(r'translate\(([\d.]+) [\d.]+\)[^>]*>roof, ', svg) or
                       re.findall(r'<text[^>]* x="([\d.]+)"[^>]*>roof, ', svg))
        curves = [points for points in self.lines(svg) if len(points) > 2]
        self.assertGreater(len(curves), 8)
        self.assertLess(max(x for points in curves for x, _ in points), float(label))

    def test_csv_says_the_same(self):
        run = files.read(RECORDED / "h200-add.json")
        source = self.folder / "add.csv"
        rows = [{**run, **run["ceilings"], **r} for r in run["rows"]]
        names = [*"op dtype precision device description seed".split(), *run["ceilings"],
                 *(k for k in run["rows"][0] if k not in ("measured", "accurate"))]
        with open(source, "w", encoding="utf-8", newline="") as f:
            out = csv.DictWriter(f, names, extrasaction="ignore")
            out.writeheader()
            out.writerows({k: ("no", "yes")[v] if isinstance(v, bool) else v for k, v in r.items()} for r in rows)
        svg = self.draw(source)
        for text in ("add f32 on NVIDIA H200", "float4x", "roof, memory"):
            self.assertIn(text, svg)

    def test_jobs_have_their_time_and_what_of_it_is_lost(self):
        figures = files.read(RECORDED / "h200.json")["figures"]
        value = {(f["theme"], f["name"]): f for f in figures}
        wall, lost = value["job", "64³ resident"], value["lost", "64³ resident"]
        svg = self.draw(RECORDED / "h200.json")
        self.assertIn(f"{wall['value']:.3g} µs, {lost['value']:.3g} of them on the way; "
                      f"cuBLAS {wall['peers'][0]['value']:.3g} µs", svg)
        self.assertIn("8192³ resident", svg)
        self.assertNotIn("spinning", svg)

    def test_what_it_cannot_draw_it_names(self):
        other = self.folder / "choice.csv"
        other.write_text("op,shape\ngemm,3\n")
        for path, words in ((self.folder / "none.json", "cannot read"), (other, "without --random"),
                            (RECORDED / "h200-random-add.json", "is not what")):
            r = plot(path, "-o", self.folder / "x.svg")
            self.assertEqual(r.returncode, 1)
            self.assertIn(words, r.stderr)
            self.assertFalse((self.folder / "x.svg").exists())


help_text = plot("-h")
if help_text.returncode == 77:
    print("skipped:", help_text.stderr.strip())
    sys.exit(77)
unittest.main()
