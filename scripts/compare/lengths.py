"""Speed of a whole model by depth, in a context of four times the trained length, for scripts/pictures."""
import json
import time

from engines import LLAMA, machine, program, run
from models import MODELS, ROOT

MODEL = MODELS["whole"]
STEP, DEEPEST, GENERATION = 1024, 16384, 8
SCALE = 0.25  # --rope-freq-scale


def measure_lengths(threads):
    """Runs both programs once, one after the other, and writes docs/results/speed-by-length.jsonl."""
    common = ["-m", MODEL.path(), "-t", threads, "-n", GENERATION, "--rope-freq-scale", SCALE]
    facts = machine()
    ours = run([program(), "sweep", *common, "--ctx", DEEPEST + STEP, "--step", STEP, "-o", "jsonl"])
    theirs = run([LLAMA.python(), ROOT / "scripts/compare/llama.py", *common, "-d", DEEPEST, "--sweep", STEP])
    compiled, *points = theirs.lines
    LLAMA.check(compiled["system_info"], facts["isa"])
    record = {
        "model": MODEL.name, "cache": "f16", "processor": (facts["topology"] or {}).get("model"), "isa": facts["isa"],
        "threads": threads, "rope_freq_scale": SCALE, "date": time.strftime("%Y-%m-%d"),
        "rope-cpu": [{"depth": p["n_kv"], "generation": p["speed_tg"], "prompt": p["speed_pp"]} for p in ours.lines],
        "llama.cpp": points,
    }
    with open(ROOT / "docs/results/speed-by-length.jsonl", "w") as file:
        print(json.dumps(record), file=file)
