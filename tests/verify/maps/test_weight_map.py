"""The map itself: what it is given must be whole and of the right shapes."""

from __future__ import annotations

import pytest
import torch

from proof_lm.errors import MapError, ProofLMError
from proof_lm.verify.maps import Place, find_map
from proof_lm.weights.mapping import take
from proof_lm.weights.names import Source
from verify.foreign import nanogpt_style

FUSED = "transformer.h.1.attn.c_attn.weight"


@pytest.mark.parametrize(
    ("source", "ours", "place"),
    [
        (Source("w"), (5, 3), Place("w", (5, 3), 0, 5)),
        (Source("w", transposed=True), (5, 3), Place("w", (3, 5), 0, 5, transposed=True)),
        (Source("w", part=1, n_parts=3), (5, 3), Place("w", (15, 3), 5, 10)),
        (Source("w", True, 2, 3), (5, 3), Place("w", (3, 15), 10, 15, transposed=True)),
        (Source("b", True, 2, 3), (5,), Place("b", (15,), 10, 15, transposed=True)),
    ],
)
def test_a_place_takes_what_its_source_takes(source: Source, ours: tuple[int, ...], place: Place) -> None:
    found = Place.of(source, ours)
    assert found == place
    assert found.ours == ours
    whole = torch.randn(found.shape)
    assert found.take(whole).shape == ours
    assert torch.equal(found.take(whole), take(source, whole))


def test_what_is_missing_or_misshapen_is_named() -> None:
    module = nanogpt_style.build()
    found = find_map(module)
    theirs = {name: parameter.detach() for name, parameter in module.named_parameters()}
    ours = {name: tensor for name, tensor in found.to_oracle(theirs).items() if tensor is not None}
    with pytest.raises(MapError, match=rf"no tensor for {FUSED}, where blocks.1.attention.query.weight lies"):
        found.to_oracle({name: tensor for name, tensor in theirs.items() if name != FUSED})
    with pytest.raises(MapError, match=rf"{FUSED} must have shape \[54, 18\], got \[18, 54\]"):
        found.to_oracle({**theirs, FUSED: theirs[FUSED].T})
    with pytest.raises(MapError, match=r"no tensor for final_norm.bias, which lies in transformer.ln_f.bias"):
        found.to_foreign({name: tensor for name, tensor in ours.items() if name != "final_norm.bias"})
    with pytest.raises(MapError, match=r"final_norm.bias must have shape \[18\], got \[17\]"):
        found.to_foreign({**ours, "final_norm.bias": torch.ones(17)})


def test_names_of_other_tensors_are_passed_over() -> None:
    module = nanogpt_style.build()
    found = find_map(module)
    state = module.state_dict()  # holds the tied matrix twice
    assert "lm_head.weight" in state
    assert found.to_oracle(state).keys() == found.places.keys()


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(MapError, ProofLMError)
    assert issubclass(MapError, ValueError)
