"""The notebook in examples/ runs, with a short text."""

import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "long_context.ipynb"


@pytest.mark.filterwarnings("ignore")
def test_notebook_draws_each_method(tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("All happy families are alike. " * 200)
    short = {"TEXT": text, "CTX": 512, "WIDTH": 128}
    matplotlib.use("agg")
    monkeypatch.chdir(NOTEBOOK.parent)
    namespace = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
            if "parameters" in cell["metadata"].get("tags", []):
                assert short.keys() <= namespace.keys()
                namespace |= short
    # The last two figures: frequencies, and perplexity by position.
    frequencies, perplexity = (plt.figure(number).axes[0].lines for number in plt.get_fignums())
    methods = namespace["METHODS"]
    # As in the README's picture.
    assert methods == ["none", "linear", "dynamic", "ntk", "yarn", "self-extend"]
    assert [line.get_label() for line in frequencies] == methods
    assert [line.get_label() for line in perplexity] == [*methods, "trained length"]
    # Within the trained length, no method changes the model. Two store keys before their rotation, so
    # they round differently to f16, and the activations of 30 layers then to 8 bits: 2 % (test_llama.py).
    for method, line in zip(methods, perplexity):
        change = line.get_ydata() / perplexity[0].get_ydata() - 1
        assert len(change) == 4
        assert (abs(change) <= (0.02 if method in ("dynamic", "self-extend") else 0)).all(), (method, change)
    plt.close("all")
