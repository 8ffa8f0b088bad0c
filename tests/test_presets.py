"""The presets, against counts that others have published or that a closed formula gives."""

import pytest
import torch

from proof_lm.errors import ConfigError
from proof_lm.model import ProofLM
from proof_lm.oracle import parameter_shapes
from proof_lm.presets import PRESETS, preset

PARAMETERS = {
    "chapter": 69_120,  # shared/design.md
    "gpt2": 124_439_808,  # openai-community/gpt2: elements of its safetensors file, without the mask buffers
    "llama-3.1-8b": 8_030_261_248,  # meta-llama/Llama-3.1-8B: elements of its safetensors files
    "llama-3.1-405b": 405_853_388_800,  # meta-llama/Llama-3.1-405B: the same
    "smollm2-135m": 134_515_008,  # HuggingFaceTB/SmolLM2-135M-Instruct: elements of its safetensors file
}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items(), ids=PARAMETERS)
def test_a_preset_has_the_published_number_of_parameters(name: str, count: int) -> None:
    """Excludes a wrong width, count, bias or tie; the model is built without memory."""
    with torch.device("meta"):
        assert ProofLM(preset(name)).parameter_count == count


def test_the_modern_preset_has_what_its_formula_gives() -> None:
    v, d, f, kv, layers = 97, 48, 128, 2 * 8, 3
    block = 2 * d * d + 2 * kv * d + 3 * d * f + 2 * d
    with torch.device("meta"):
        assert ProofLM(preset("modern")).parameter_count == 2 * v * d + layers * block + d


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_the_parameters_that_the_oracle_expects(name: str) -> None:
    with torch.device("meta"):
        model = ProofLM(preset(name))
    assert {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()} == parameter_shapes(
        preset(name)
    )


def test_an_unknown_preset_is_refused_with_the_list() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^no preset named 'gpt3'; there are chapter, modern, gpt2, smollm2-135m, llama-3\.1-8b, ",
    ):
        preset("gpt3")
