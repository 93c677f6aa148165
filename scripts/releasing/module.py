"""Continues a text with the installed `rope_cpu`, as the program does with these options, and checks a plan of RoPE.

usage: python scripts/releasing/module.py -m MODEL -no-cnv -p TEXT -n TOKENS --temp T
"""
import argparse
import importlib.metadata

import rope_cpu

parser = argparse.ArgumentParser()
parser.add_argument("-m", required=True)
parser.add_argument("-no-cnv", action="store_true")
parser.add_argument("-p", required=True)
parser.add_argument("-n", type=int, required=True)
parser.add_argument("--temp", type=float, required=True)
options = parser.parse_args()

assert rope_cpu.__version__ == importlib.metadata.version("rope-cpu-python")

plan = rope_cpu.rope.plan(options.m, ctx=16384, rope="linear:2")
ratios = plan.frequencies / plan.trained_frequencies
assert (ratios == 0.5).all(), f"linear:2 does not halve the frequencies: {ratios}"

with rope_cpu.Model.open(options.m, ctx=2048) as model:
    print(options.p + model.generate(options.p, max_tokens=options.n, temperature=options.temp))
