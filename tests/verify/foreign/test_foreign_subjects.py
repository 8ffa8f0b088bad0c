"""The decoders of this folder are what they claim: the right ones agree with the oracle, the faulty ones do not.

The oracle is the evidence from outside: it shares no code with them. Their weights go to it by the maps in
``in_our_terms``.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from proof_lm.config import DecoderConfig
from proof_lm.oracle import decoder_backward, decoder_forward, parameter_shapes
from verify.foreign import (
    cs336_style,
    litgpt_style,
    llms_from_scratch_style,
    nanogpt_style,
    torch_nn_decoder,
)
from verify.foreign.in_our_terms import (
    CORRECT,
    CS336,
    LITGPT,
    LLMS_FROM_SCRATCH,
    NANOGPT,
    TORCH_NN,
    TORCH_NN_TIED,
    Foreign,
)

FLOAT64 = 1e-10
"""Relative. Rounding in float64 leaves about 1e-15 here; a single float32 constant leaves 3e-9."""
FLOAT32 = 1e-5
SEEN = 1e-5
"""What a fault moves is at least this, relative to the largest logit or gradient: far above FLOAT64."""

every_correct = pytest.mark.parametrize("foreign", CORRECT.values(), ids=CORRECT)


def some_ids(config: DecoderConfig, n_rows: int = 5, n_tokens: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(config.vocab_size, (n_rows, n_tokens or config.context_length), generator=generator)


def apart(found: Tensor | np.ndarray | float, wanted: Tensor | np.ndarray | float) -> float:
    """The largest difference, relative to the largest of what is wanted."""
    found, wanted = (x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (found, wanted))
    assert found.shape == wanted.shape
    assert np.isfinite(wanted).all()
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@every_correct
def test_logits_and_gradients_are_the_oracles(foreign: Foreign) -> None:
    """Over the whole context: a place beyond some table's end, or a layout of positions, would show."""
    model, ids = foreign.build().double(), some_ids(foreign.config)
    logits = foreign.logits(model, ids)
    upstream = torch.randn(logits.shape, dtype=torch.float64)
    logits.backward(upstream)
    weights = foreign.in_our_names(dict(model.named_parameters(remove_duplicate=False)))
    trace = decoder_forward(foreign.config, weights, ids.numpy())
    assert apart(logits, trace.logits) < FLOAT64
    gradients = foreign.in_our_names(
        {name: weight.grad for name, weight in model.named_parameters(remove_duplicate=False)}
    )
    wanted = decoder_backward(foreign.config, weights, trace, grad_logits=upstream.numpy())
    for name, gradient in gradients.items():
        if name.endswith("key.bias") and foreign.config.position != "rope":
            assert np.abs(gradient).max() < 1e-12  # it adds the same to all scores of a query
        else:
            assert apart(gradient, wanted[name]) < FLOAT64, name


@every_correct
def test_every_parameter_is_mapped_and_shows(foreign: Foreign) -> None:
    model = foreign.build()
    places = {foreign.place(name)[0] for name in parameter_shapes(foreign.config)}
    aliases = dict(model.named_parameters(remove_duplicate=False))
    assert {id(aliases[name]) for name in places} == {id(weight) for weight in model.parameters()}
    n_elements = sum(np.prod(shape) for shape in parameter_shapes(foreign.config).values())
    assert n_elements == sum(weight.numel() for weight in model.parameters())
    for name, weight in model.named_parameters():
        assert weight.dtype == torch.float32
        assert not (weight == 0.0).any(), name
        assert not (weight == 1.0).any(), name
    assert not model.training


@every_correct
def test_sizes_are_pairwise_different(foreign: Foreign) -> None:
    config = foreign.config
    sizes = [config.vocab_size, config.context_length, config.n_layers, config.d_model, config.n_heads]
    sizes += [config.head_width, config.d_ff]
    if config.kv_heads != config.n_heads:
        sizes.append(config.kv_heads)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    ("file", "foreign"),
    [("torch_nn_decoder.json", TORCH_NN), ("torch_nn_decoder_tied.json", TORCH_NN_TIED)],
    ids=["untied", "tied"],
)
def test_the_map_files_say_the_same(file: str, foreign: Foreign) -> None:
    declared = json.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))
    assert DecoderConfig.from_dict(declared["config"]) == foreign.config
    if foreign.config.tie_embeddings:
        assert declared["weights"].pop("head.weight") == "out.weight"  # the embedding, if it is tied
    theirs = {}
    for i in range(foreign.config.n_layers):
        theirs |= {ours.format(i=i): name.format(i=i) for ours, name in declared["weights"].items()}
    assert theirs == {name: foreign.place(name)[0] for name in parameter_shapes(foreign.config)}


LEFT = [[0, 0, 0, 1, 1, 1, 1], [1] * 7, [0, 0, 0, 0, 0, 0, 1]]
RIGHT = [[1, 1, 1, 1, 0, 0, 0], [1] * 7, [1, 0, 0, 0, 0, 0, 0]]
HOLES = [[1, 1, 0, 0, 1, 1, 1], [1] * 7, [0, 1, 0, 1, 0, 1, 1]]


@pytest.mark.parametrize("mask", [LEFT, RIGHT, HOLES], ids=["left", "right", "holes"])
@pytest.mark.parametrize("has_positions", [False, True], ids=["counted", "given"])
def test_attention_mask_and_positions_are_as_the_oracle_has_them(mask: list, has_positions: bool) -> None:
    model, ids = torch_nn_decoder.correct().double(), some_ids(TORCH_NN.config, 3, 7)
    positions = torch.tensor([[4, 2, 9, 0, 11, 3, 3], [0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]])
    positions = positions if has_positions else None
    mask = torch.tensor(mask)
    logits = model(ids, attention_mask=mask, position_ids=positions).logits
    real = mask.bool().numpy()
    weights = TORCH_NN.in_our_names(dict(model.named_parameters()))
    trace = decoder_forward(
        TORCH_NN.config,
        weights,
        ids.numpy(),
        padding_mask=real,
        position_ids=None if positions is None else positions.numpy(),
    )
    assert apart(logits[mask.bool()], trace.logits[real]) < FLOAT64


def test_a_row_of_padding_alone_leaves_logits_and_gradients_finite() -> None:
    model, ids = torch_nn_decoder.correct(), some_ids(TORCH_NN.config, 2, 7)
    mask = torch.tensor([LEFT[0], [0] * 7])
    output = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100))
    output.loss.backward()
    assert output.logits.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_labels_are_shifted_inside_and_100_below_zero_does_not_count() -> None:
    model, ids = torch_nn_decoder.correct().double(), some_ids(TORCH_NN.config, 3, 7)
    labels = ids.clone()
    labels[0, 2] = labels[2, 5] = -100
    loss = model(ids, labels=labels).loss
    aligned = torch.cat([labels[:, 1:], torch.full((3, 1), -100)], dim=1).numpy()
    weights = TORCH_NN.in_our_names(dict(model.named_parameters()))
    trace = decoder_forward(TORCH_NN.config, weights, ids.numpy(), aligned, aligned != -100)
    assert apart(loss, trace.loss) < FLOAT64
    assert model(ids).loss is None


def test_nanogpt_gives_the_last_logits_only_unless_it_has_targets() -> None:
    model, ids = nanogpt_style.build().double(), some_ids(NANOGPT.config, 3, 7)
    targets = ids.roll(-1, dims=1)
    targets[:, -1] = -1
    logits, loss = model(ids, targets)
    last, nothing = model(ids)
    assert nothing is None
    assert last.shape == (3, 1, 29)
    assert apart(last, logits[:, -1:]) < FLOAT64
    weights = NANOGPT.in_our_names(dict(model.named_parameters()))
    trace = decoder_forward(NANOGPT.config, weights, ids.numpy(), targets.numpy(), targets.numpy() != -1)
    assert apart(loss, trace.loss) < FLOAT64


@pytest.mark.parametrize(
    ("build", "foreign"),
    [
        (cs336_style.build_upcasting, CS336),
        (llms_from_scratch_style.build_with_float32_gelu, LLMS_FROM_SCRATCH),
        (litgpt_style.build_in_float32, LITGPT),
    ],
    ids=["cs336", "llms-from-scratch", "litgpt"],
)
def test_as_published_a_float64_model_is_off_by_float32s_rounding(
    build: Callable[[], nn.Module], foreign: Foreign
) -> None:
    model, ids = build().double(), some_ids(foreign.config)
    weights = foreign.in_our_names(dict(model.named_parameters()))
    residual = apart(foreign.logits(model, ids), decoder_forward(foreign.config, weights, ids.numpy()).logits)
    assert FLOAT64 < residual < FLOAT32


def test_litgpt_refuses_positions_without_a_cache_and_has_decoders_that_are_none_of_ours() -> None:
    model, ids = litgpt_style.build(), some_ids(LITGPT.config)
    with pytest.raises(TypeError, match="needs a key/value cache"):
        model(ids, torch.arange(ids.shape[1]))
    for other in (litgpt_style.build_parallel_residual(), litgpt_style.build_partly_rotated()):
        assert apart(other(ids), model(ids)) > SEEN


# The nineteen faults, by what gives them away, and the masks or lengths that do.
IN_THE_OUTPUT = {
    "no-causal-mask",
    "mask-off-by-one",
    "leak-only-in-row-0",
    "leak-only-for-long",
    "heads-merged-without-transpose",
    "batch-mixing",
    "no-final-norm",
    "rope-on-q-only",
    "rope-pairing",
    "gqa-interleaved",
    "scale-missing",
    "gate-and-up-swapped",
    "no-residual",
}
# Right padding shows neither: no real query can see it. Left padding moves all positions alike, and rotary
# scores depend on distances only.
IN_THE_OUTPUT_UNDER_A_MASK = {"padding-ignored": (LEFT, HOLES), "positions-ignore-the-mask": (HOLES,)}
IN_THE_GRADIENT = {
    "attention-detached": {"layers.{i}.attn.wq.weight", "layers.{i}.attn.wk.weight"},
    "residual-detached": {"tok.weight", "layers.{i}.attn.wo.weight"},
    "untied": {"tok.weight"},
}
IN_BEHAVIOUR = {"mask-minus-1e4"}  # scores beyond 10000, and rows that see nothing


def twin(name: str) -> nn.Module:
    correct = torch_nn_decoder.correct_tied if name == "untied" else torch_nn_decoder.correct
    return correct().double()


def test_every_fault_is_shown_once() -> None:
    shown = [*IN_THE_OUTPUT, *IN_THE_OUTPUT_UNDER_A_MASK, *IN_THE_GRADIENT, *IN_BEHAVIOUR]
    assert sorted(shown) == sorted(torch_nn_decoder.FAULTS)
    assert len(shown) == 19


@pytest.mark.parametrize("name", torch_nn_decoder.FAULTS)
def test_a_fault_has_a_sentence_a_factory_and_the_same_weights(name: str) -> None:
    sentence = torch_nn_decoder.FAULTS[name]
    assert sentence.endswith(".")
    assert "\n" not in sentence
    model = getattr(torch_nn_decoder, name.replace("-", "_"))().double()
    wanted = dict(twin(name).named_parameters(remove_duplicate=False))
    found = dict(model.named_parameters(remove_duplicate=False))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("name", sorted(IN_THE_OUTPUT))
def test_output_faults_move_the_logits(name: str) -> None:
    ids = some_ids(TORCH_NN.config, n_tokens=19)
    assert apart(torch_nn_decoder.faulty(name).double()(ids).logits, twin(name)(ids).logits) > SEEN


@pytest.mark.parametrize("name", IN_THE_OUTPUT_UNDER_A_MASK)
def test_mask_faults_move_real_logits_under_a_mask_and_only_there(name: str) -> None:
    model, correct = torch_nn_decoder.faulty(name).double(), twin(name)
    ids = some_ids(TORCH_NN.config, 3, 7)
    assert torch.equal(model(ids).logits, correct(ids).logits)
    for mask in (LEFT, RIGHT, HOLES):
        attention_mask = torch.tensor(mask)
        real = attention_mask.bool()
        found, wanted = (m(ids, attention_mask=attention_mask).logits[real] for m in (model, correct))
        if mask in IN_THE_OUTPUT_UNDER_A_MASK[name]:
            assert apart(found, wanted) > SEEN
        else:
            assert apart(found, wanted) < FLOAT64


@pytest.mark.parametrize("name", IN_THE_GRADIENT)
def test_gradient_faults_move_gradients_and_no_logit(name: str) -> None:
    model, correct = torch_nn_decoder.faulty(name).double(), twin(name)
    ids = some_ids(TORCH_NN.config, n_tokens=19)
    found, wanted = model(ids, labels=ids), correct(ids, labels=ids)
    assert torch.equal(found.logits, wanted.logits)
    found.loss.backward()
    wanted.loss.backward()
    gradients = dict(correct.named_parameters())
    for template in IN_THE_GRADIENT[name]:
        weight = template.format(i=0)
        gradient = model.get_parameter(weight).grad
        gradient = torch.zeros_like(gradients[weight]) if gradient is None else gradient
        assert apart(gradient, gradients[weight].grad) > SEEN, weight


def test_untied_has_the_table_twice() -> None:
    n_elements = [
        sum(weight.numel() for weight in model.parameters())
        for model in (twin("untied"), torch_nn_decoder.untied())
    ]
    assert n_elements[1] - n_elements[0] == 31 * 24


def test_a_mask_of_minus_1e4_gives_way_to_large_scores_and_to_rows_that_see_nothing() -> None:
    model, correct = torch_nn_decoder.mask_minus_1e4().double(), twin("mask-minus-1e4")
    ids = some_ids(TORCH_NN.config, n_tokens=19)
    assert torch.equal(model(ids).logits, correct(ids).logits)
    # Left padding: the first queries see nothing, and here attend to all there is.
    mask = torch.ones_like(ids)
    mask[:, :3] = 0
    found, wanted = (m(ids, attention_mask=mask).logits for m in (model, correct))
    assert apart(found[:, :3], wanted[:, :3]) > SEEN
    # Large scores: the future is visible again.
    others = ids.clone()
    others[:, 9:] = (ids[:, 9:] + 1) % 31
    moved = []
    for decoder in (model, correct):
        with torch.no_grad():
            decoder.layers[0].attn.wq.weight *= 1e5
        moved.append(apart(decoder(others).logits[:, :9], decoder(ids).logits[:, :9]))
    assert moved[0] > SEEN
    assert moved[1] == 0.0


def test_the_partial_faults_are_right_elsewhere() -> None:
    ids = some_ids(TORCH_NN.config, n_tokens=19)
    correct = torch_nn_decoder.correct().double()
    wanted, short, alone = correct(ids).logits, correct(ids[:, :16]).logits, correct(ids[:1]).logits
    assert torch.equal(torch_nn_decoder.leak_only_in_row_0().double()(ids).logits[1:], wanted[1:])
    assert torch.equal(torch_nn_decoder.leak_only_for_long().double()(ids[:, :16]).logits, short)
    assert apart(torch_nn_decoder.batch_mixing().double()(ids[:1]).logits, alone) < FLOAT64
