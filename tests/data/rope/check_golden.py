#!/usr/bin/env python3
"""Recomputes every frequency, resolution, rotation and disturbance of golden.json with rope_ref.py (needs numpy)."""
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


def near(what, found, expected):
    assert abs(found - expected) <= 1e-12, f"{what}: {found} is not {expected}"


def check_disturbances():
    golden = json.loads((FOLDER / "golden.json").read_text())
    for case in golden["dprope"]:
        params = case["params"]
        choices = [{**case, "n_hat": None}, *case.get("n_hat", [])]
        for choice in choices:
            found = ref.dprope(**{**params, "n_hat": choice["n_hat"]})
            mask = "".join("I" if interpolated else "E" for interpolated in found.mask)
            assert mask == choice["mask"], (params, choice["n_hat"])
            near(params, found.D, choice["D"])
    for case in golden["disturbance"]:
        n_rot, base, L, L_new, b = (case["params"][name] for name in ("n_rot", "base", "L", "L_new", "b"))
        s = L_new / L
        methods = {
            "none": ref.none(n_rot, base),
            "linear": ref.linear(n_rot, base, s),
            "ntk_static": ref.ntk_static(n_rot, base, s),
            "yarn_hf": ref.yarn_hf(n_rot, base, s, L),
            "yarn_hf_notrunc": ref.yarn_hf(n_rot, base, s, L, truncate=False),
            "yarn_paper": ref.yarn_paper(n_rot, base, s, L),
            "ntk_dynamic_hf_f2": ref.ntk_dynamic_hf(n_rot, base, 2.0, L, L_new),
        }
        for name, rope in methods.items():
            for column, kl in (("code", "code"), ("paper_eps1e_6", "paper")):
                mean, _ = ref.disturbance(rope.inv_freq, ref.inv_freq(n_rot, base), L, L_new, b, kl)
                near((case["params"], name, kl), mean, case[column][name])


check()
check_disturbances()
print("golden.json is what rope_ref.py computes")
