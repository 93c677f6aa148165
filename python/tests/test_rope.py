"""RoPE plans, beside the formulas of their papers."""

import warnings

import numpy as np
import pytest

import rope_cpu
from rope_cpu import Model, rope


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_the_models_own_frequencies(path):
    plan = rope.plan(path, ctx=4096)
    pairs = np.arange(32)
    # float64 has 15 digits; the power is within a few units of the last.
    assert np.allclose(plan.frequencies, 100000.0 ** (-pairs / 32), rtol=1e-12, atol=0)
    assert (plan.frequencies == plan.trained_frequencies).all()
    assert (plan.method, plan.factor, plan.attention_scale) == ("none", 1.0, 1.0)
    assert plan.sources["base"] == "llama.rope.freq_base"
    assert plan.sources["context"] == "ctx"


def test_yarn_has_the_attention_scale_of_its_paper(path):
    plan = rope.plan(path, ctx=32768, rope="yarn:4")
    assert np.isclose(plan.attention_scale, 0.1 * np.log(4) + 1, rtol=1e-12)
    ratio = plan.frequencies / plan.trained_frequencies
    assert np.isclose(ratio[0], 1) and np.isclose(ratio[-1], 0.25)
    assert plan.sources["factor"] == "rope_scale 4"
    assert plan.sources["yarn_beta_fast"] == "default"


def test_all_forms_of_a_method_give_one_plan(path):
    forms = [
        {"rope": "linear:4"},
        {"rope": "linear:rope-scale=4"},
        {"rope": {"method": "linear", "rope_scale": 4}},
        {"rope": "linear", "rope_scale": 4.0},
        {"rope_scaling": "linear", "rope_freq_scale": 0.25},
        {"rope": "linear", "rope_scale": np.float32(4)},
    ]
    for form in forms:
        plan = rope.plan(path, ctx=32768, **form)
        assert (plan.method, plan.factor) == ("linear", 4.0), form
        assert np.allclose(plan.frequencies * 4, plan.trained_frequencies, rtol=1e-12), form


def test_settings_reach_the_library(path):
    exact = rope.plan(path, ctx=32768, rope="yarn:4:yarn-ramp=turns")
    plan = rope.plan(path, ctx=32768, rope={"method": "yarn", "rope_scale": 4, "yarn_ramp": "turns"})
    assert (plan.frequencies == exact.frequencies).all()
    assert not (plan.frequencies == rope.plan(path, ctx=32768, rope="yarn:4").frequencies).all()
    with pytest.raises(ValueError, match="rope and rope_scale both set rope_scale"):
        rope.plan(path, rope={"method": "yarn", "rope_scale": 4}, rope_scale=2)
    with pytest.raises(ValueError, match="contradicts"):
        rope.plan(path, ctx=512, rope="none:4")


def test_a_context_beyond_the_trained_one_warns_without_a_method(path):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with Model.open(path, ctx=16384) as model:
            assert model.rope.warnings
            assert rope.plan(model, ctx=512).context == 512
    assert any("8192" in str(warning.message) for warning in found)


def test_a_method_changes_the_answer(path):
    tokens = list(range(100, 140))
    with Model.open(path, ctx=64, threads=1) as model, Model.open(path, ctx=64, threads=1, rope="linear:8") as linear:
        assert not np.allclose(model.logits(tokens)[-1], linear.logits(tokens)[-1])
        assert (model.logits(tokens)[0] == linear.logits(tokens)[0]).all()


def test_the_settings_of_an_open_model_hold(path):
    with rope_cpu.Model.open(path, ctx=4096, threads=1, override_kv=["llama.rope.freq_base=float:1000000"]) as model:
        assert rope_cpu.rope.plan(model).base == 1e6
        plan = rope_cpu.rope.plan(model, rope="yarn", rope_scale=2)
        assert (plan.base, plan.factor, plan.context) == (1e6, 2.0, 4096)


def test_settings_are_described():
    described = rope_cpu.rope.settings()
    assert "factor" in described["rope_scale"]
