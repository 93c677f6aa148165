#!/usr/bin/env python3
"""Recomputes every frequency, resolution and rotation of golden.json with rope_ref.py (needs numpy)."""
import json
import math
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import rope_ref as ref

FOLDER = Path(__file__).parent
# How a method is called there; the rest of its parameters go by name.
POSITIONAL = {
    "none": ["n_rot", "base"],
    "linear": ["n_rot", "base", "factor"],
    "ntk_static": ["n_rot", "base", "alpha"],
    "ntk_mixed": ["n_rot", "base", "k", "b"],
    "ntk_dynamic_hf": ["n_rot", "base", "factor", "max_pos", "seq_len"],
    "ntk_dynamic_fu1": ["n_rot", "base", "s", "C", "C_test"],
    "ntk_dynamic_fu2": ["n_rot", "base", "C", "C_prime", "C_test"],
}


def same(what, found, expected):
    for a, b in zip(found, expected, strict=True):
        assert math.isclose(a, b, rel_tol=1e-14, abs_tol=1e-17), f"{what}: {a} is not {b}"


def check():
    golden = json.loads((FOLDER / "golden.json").read_text())
    for case in golden["rope"]:
        method, params = case["method"], dict(case["params"])
        params.pop("model", None)
        if method in POSITIONAL:
            rope = getattr(ref, method)(*(params[name] for name in POSITIONAL[method]))
        else:
            rope = getattr(ref, method)(**params)
        same(case["id"], rope.inv_freq, case["inv_freq"])
        same(case["id"], [rope.attn_scale], [case["attn_scale"]])
    for case in golden["llamacpp_resolve"]:
        resolved = ref.resolve_llamacpp(case["meta"], case["cli"], case["arch"])
        assert resolved == case["resolved"], (case, resolved)
    yarn = ref.yarn_hf(8, 1e4, 4.0, 64)
    for case in golden["rotate"]:
        same("rotation", ref.apply_rope(case["x"], case["pos"], yarn, case["style"]), case["y"])


check()
print("golden.json is what rope_ref.py computes")
