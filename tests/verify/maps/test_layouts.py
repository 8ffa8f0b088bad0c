"""Every known layout: recognised, in agreement with the oracle, inverted to the bit, and wrong when changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from proof_lm.verify.maps import WeightMap, find_map
from verify.maps.agreement import SEEN, float64_bound, residuals
from verify.maps.cases import CASES, HF_GPT2, HF_LLAMA, Case, hugging_face

HF = [*HF_LLAMA, *HF_GPT2]
EVERY = [*CASES, *HF]


@pytest.fixture(params=EVERY)
def case(request: pytest.FixtureRequest) -> Case:
    if request.param not in HF:
        return CASES[request.param]
    pytest.importorskip("transformers", reason="the peer, transformers (extra 'hf'), is not installed")
    return hugging_face(request.param)


@pytest.fixture
def module(case: Case) -> nn.Module:
    return case.build().to(torch.float64).eval()


def test_a_decoder_is_recognised_with_its_config(case: Case, module: nn.Module) -> None:
    found = find_map(module)
    assert found.family == case.family
    assert found.config == case.config


def test_through_its_map_a_decoder_agrees_with_the_oracle(case: Case, module: nn.Module) -> None:
    found = find_map(module)
    logits, gradients = residuals(found, module, case.logits_of)
    bound = float64_bound(found) if case.bound is None else case.bound
    assert logits <= bound
    assert gradients <= bound


def test_there_and_back_is_the_identity(module: nn.Module) -> None:
    found = find_map(module)
    theirs = {name: parameter.detach() for name, parameter in module.named_parameters()}
    back = found.to_foreign(found.to_oracle(theirs))
    assert back.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(back[name], tensor), name
    again = found.to_oracle(back)
    ours = found.to_oracle(theirs)
    assert all(torch.equal(again[name], ours[name]) for name in ours)


Spoil = Callable[[str, np.ndarray], np.ndarray]


def wrong_maps(found: WeightMap) -> Iterator[tuple[str, WeightMap, Spoil | None]]:
    """Maps that differ from the right one in one thing."""
    config, places = found.config, found.places

    def swapped(a: str, b: str) -> WeightMap:
        """Each place whose name holds ``a`` and its like that holds ``b`` have changed places."""
        pairs = {name: name.replace(a, b) for name in places if a in name and name.replace(a, b) in places}
        assert pairs
        pairs |= {b_name: a_name for a_name, b_name in pairs.items()}
        return replace(found, places={name: places[pairs.get(name, name)] for name in places})

    yield "keys for values", swapped(".key.", ".value."), None
    yield "norms", swapped(".attention_norm.", ".feed_forward_norm."), None
    yield "blocks", swapped("blocks.0.", "blocks.1."), None
    if config.feed_forward == "gated":
        yield "gate for up", swapped(".gate.", ".up."), None
    if config.position == "rope":
        layout = "half" if config.rope_layout == "interleaved" else "interleaved"
        yield "rotary pairs", replace(found, config=config.with_(rope_layout=layout)), None
    if config.kv_heads > 1:

        def other_kv_head(name: str, weight: np.ndarray) -> np.ndarray:
            is_kv = ".key." in name or ".value." in name
            return np.roll(weight, config.head_width, axis=0) if is_kv else weight

        yield "KV heads in another order", found, other_kv_head

    if config.n_heads * config.head_width == config.d_model:

        def turned(name: str, weight: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(weight.T) if name.endswith("attention.out.weight") else weight

        yield "out transposed", found, turned


def test_a_wrong_map_disagrees(case: Case, module: nn.Module) -> None:
    kinds = list(wrong_maps(find_map(module)))
    assert len(kinds) >= 4
    for kind, wrong, change in kinds:
        logits, gradients = residuals(wrong, module, case.logits_of, change)
        assert logits > SEEN, kind
        assert gradients > SEEN, kind


def test_a_parameter_without_gradient_has_none_in_our_names_either() -> None:
    module = CASES["nanogpt"].build().double()
    found = find_map(module)
    gradients: dict[str, torch.Tensor | None] = dict.fromkeys(dict(module.named_parameters()))
    gradients["transformer.wte.weight"] = torch.ones(29, 18)
    ours = found.to_oracle(gradients)
    assert [name for name, gradient in ours.items() if gradient is not None] == ["embedding.weight"]


def test_what_the_map_gives_are_views() -> None:
    module = CASES["litgpt"].build()
    with torch.no_grad():
        find_map(module).to_oracle(dict(module.named_parameters()))["blocks.1.attention.value.weight"].fill_(
            7.0
        )
    rows = (module.get_parameter("transformer.h.1.attn.qkv.weight") == 7.0).all(1)
    assert rows.nonzero().flatten().tolist() == list(range((6 + 3) * 4, (6 + 3 + 3) * 4))
