"""The examples of README.md and docs/python.md run."""

import re
import shutil
from pathlib import Path

import pytest

from rope_cpu import Model

PAGES = [Path(__file__).parents[1] / "README.md", Path(__file__).parents[2] / "docs" / "python.md"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, path, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    shutil.copy(path, tmp_path / "model.gguf")
    (tmp_path / "text.txt").write_text("All happy families are alike. " * 200)
    # Several threads wait long for each other if the machine is busy.
    opened = Model.__init__
    monkeypatch.setattr(Model, "__init__", lambda *args, **options: opened(*args, **{"threads": 1, **options}))
    namespace = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), namespace)
