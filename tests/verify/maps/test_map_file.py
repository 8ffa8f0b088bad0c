"""Maps that somebody wrote: what they can say, and the message for every way in which they can be wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.verify import randomized
from proof_lm.verify.maps import find_map, read_map
from verify.foreign import nanogpt_style, torch_nn_decoder
from verify.maps.agreement import SEEN, float64_bound, residuals
from verify.maps.cases import CASES, MODERN, stranger

FOREIGN = Path(torch_nn_decoder.__file__).parent


def write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def logits_of(module: nn.Module, ids: Tensor) -> Tensor:
    return module(ids).logits


@pytest.mark.parametrize("name", ["torch_nn_decoder", "torch_nn_decoder_tied"])
def test_a_written_map_agrees_with_the_oracle(name: str) -> None:
    build = torch_nn_decoder.correct_tied if name.endswith("tied") else torch_nn_decoder.correct
    module = build().double()
    found = read_map(FOREIGN / f"{name}.json", module)
    assert found.family == f"map file {name}.json"
    logits, gradients = residuals(found, module, logits_of)
    assert max(logits, gradients) <= float64_bound(found)


@pytest.mark.parametrize("fault", ["gqa-interleaved", "rope-pairing", "gate-and-up-swapped", "scale-missing"])
def test_through_it_a_faulty_decoder_disagrees(fault: str) -> None:
    module = torch_nn_decoder.faulty(fault).double()
    logits, gradients = residuals(read_map(FOREIGN / "torch_nn_decoder.json", module), module, logits_of)
    assert logits > SEEN
    assert gradients > SEEN


NANOGPT: dict[str, object] = {
    "embedding.weight": "lm_head.weight",  # an alias: the parameter is transformer.wte.weight
    "position_embedding.weight": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "blocks.{i}.attention_norm.weight": "transformer.h.{i}.ln_1.weight",
    "blocks.{i}.attention.query.weight": {
        "name": "transformer.h.{i}.attn.c_attn.weight",
        "part": 0,
        "n_parts": 3,
    },
    "blocks.{i}.attention.key.weight": {"name": "transformer.h.{i}.attn.c_attn.weight", "rows": [18, 36]},
    "blocks.0.attention.value.weight": {
        "name": "transformer.h.0.attn.c_attn.weight",
        "part": 2,
        "n_parts": 3,
    },
    "blocks.1.attention.value.weight": {"name": "transformer.h.1.attn.c_attn.weight", "rows": [36, 54]},
    "blocks.{i}.attention.out.weight": "transformer.h.{i}.attn.c_proj.weight",
    "blocks.{i}.feed_forward_norm.weight": "transformer.h.{i}.ln_2.weight",
    "blocks.{i}.feed_forward.up.weight": "transformer.h.{i}.mlp.c_fc.weight",
    "blocks.{i}.feed_forward.down.weight": "transformer.h.{i}.mlp.c_proj.weight",
}


def test_parts_rows_single_blocks_and_aliases_say_the_same_as_the_known_layout(tmp_path: Path) -> None:
    module = nanogpt_style.build_without_bias()
    config = CASES["nanogpt without biases"].config.to_dict()
    found = read_map(write(tmp_path / "nano.json", {"config": config, "weights": NANOGPT}), module)
    assert found.config == find_map(module).config
    assert found.places == find_map(module).places


class Turned(nn.Module):
    """Our decoder with matrices stored (in, out), keys and values in one."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.model = [randomized(config, seed=3).double().requires_grad_(False)]
        self.config = config
        for name, parameter in self.model[0].named_parameters():
            if ".attention.key." not in name and ".attention.value." not in name:
                self.add(name, parameter)
        for i, block in enumerate(self.model[0].blocks):
            attention = block.attention
            self.add(f"blocks.{i}.kv.weight", torch.cat([attention.value.weight, attention.key.weight]))

    def add(self, name: str, tensor: Tensor) -> None:
        self.register_parameter(
            name.replace(".", "/"), nn.Parameter(tensor.T.clone() if tensor.ndim > 1 else tensor)
        )

    def forward(self, ids: Tensor) -> Tensor:
        theirs = {name.replace("/", "."): parameter.T for name, parameter in self.named_parameters()}
        for i in range(self.config.n_layers):
            both = theirs.pop(f"blocks.{i}.kv.weight")
            theirs[f"blocks.{i}.attention.value.weight"], theirs[f"blocks.{i}.attention.key.weight"] = (
                both.chunk(2)
            )
        return torch.func.functional_call(self.model[0], theirs, (ids,))[0]


@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension other than 2")
@pytest.mark.parametrize("by_rows", [False, True])
def test_transposed_and_fused_parameters_agree_with_the_oracle(by_rows: bool, tmp_path: Path) -> None:
    module = Turned(MODERN)
    weights: dict[str, object] = {}
    for name in dict(module.model[0].named_parameters()):
        template = name.replace("blocks.0.", "blocks.{i}.")
        if "blocks.1." not in name and ".key." not in name and ".value." not in name:
            weights[template] = {"name": template.replace(".", "/"), "transposed": name.endswith("weight")}
    fused = {"name": "blocks/{i}/kv/weight", "transposed": True}
    rows = {"key": {"rows": [12, 24]}, "value": {"rows": [0, 12]}}
    parts = {"key": {"part": 1, "n_parts": 2}, "value": {"part": 0, "n_parts": 2}}
    for part, where in (rows if by_rows else parts).items():
        weights[f"blocks.{{i}}.attention.{part}.weight"] = fused | where
    path = write(tmp_path / "turned.json", {"config": MODERN.to_dict(), "weights": weights})
    found = read_map(path, module)
    logits, gradients = residuals(found, module, lambda module, ids: module(ids))
    assert max(logits, gradients) <= float64_bound(found)
    theirs = {name: parameter.detach() for name, parameter in module.named_parameters()}
    back = found.to_foreign(found.to_oracle(theirs))
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.items())


Edit = Callable[[dict[str, Any]], object]


def weight(name: str, value: object) -> Edit:
    """Sets one entry, or takes it out where the value is None."""

    def edit(document: dict[str, Any]) -> None:
        document["weights"].pop(name, None) if value is None else document["weights"].update({name: value})

    return edit


def field(name: str, value: object) -> Edit:
    return lambda document: document["config"].update({name: value})


QUERY, KEY = "blocks.{i}.attention.query.weight", "blocks.{i}.attention.key.weight"
WQ, WK = "layers.{i}.attn.wq.weight", "layers.{i}.attn.wk.weight"
AT = r'"weights", entry \'blocks\.\{i\}\.attention\.query\.weight\': '
WRONG: dict[str, tuple[Edit, str]] = {
    "no weights": (lambda document: document.pop("weights"), r"the file lacks 'weights'"),
    "another key": (
        lambda document: document.update(wieghts={}),
        r"the file has unknown 'wieghts'; known are config, conventions, weights",
    ),
    "config is a list": (
        lambda document: document.update(config=[1]),
        r'"config" must be an object .* got \[1\]',
    ),
    "config lacks": (lambda document: document["config"].pop("d_ff"), r'"config": config lacks d_ff'),
    "config unknown": (field("n_head", 6), r'"config": unknown config field n_head; the fields are '),
    "config wrong": (field("n_kv_heads", 4), r'"config": n_kv_heads must divide n_heads = 6'),
    "layers beyond counting": (
        field("n_layers", 10**12),
        r"n_layers is 1000000000000, and the module has 21 param",
    ),
    "weights is a list": (lambda document: document.update(weights=[1]), r'"weights" must be an object'),
    "weights is empty": (lambda document: document.update(weights={}), r'"weights" must be an object'),
    "unknown tensor": (
        weight("blocks.{i}.attention.q.weight", WQ),
        (
            r"entry 'blocks.\{i\}.attention.q.weight': the decoder of this config has no such tensor; did you mean "
            r"blocks.\{i\}.attention."
        ),
    ),
    "nothing like it": (
        weight("zzz", "tok.weight"),
        r"'zzz': the decoder .* no such tensor; there are embedding.weight, ",
    ),
    "a bias it does not have": (
        weight("final_norm.bias", "norm.bias"),
        r"no such tensor; did you mean final_norm.weight",
    ),
    "unknown parameter": (
        weight(QUERY, "layers.{i}.attn.wg.weight"),
        AT + r"the module has no parameter 'layers.0.attn.wg.weight'; did you mean layers.0.attn.w",
    ),
    "too few layers in the module": (field("n_layers", 3), r"has no parameter 'layers.2.norm1.weight'"),
    "too few layers in the config": (
        field("n_layers", 1),
        r'no entry of "weights" mentions layers.1.norm1.weight, ',
    ),
    "wrong shape": (
        weight(QUERY, WK),
        AT
        + r"layers.0.attn.wk.weight has shape \[12, 24\], expected \[24, 24\] for ours of shape \[24, 24\]",
    ),
    "wrong shape, transposed": (
        weight(KEY, {"name": WK, "transposed": True}),
        r"has shape \[12, 24\], expected \[24, 12\] for ours of shape \[12, 24\]",
    ),
    "wrong parts": (
        weight(KEY, {"name": WK, "part": 1, "n_parts": 3}),
        r"has shape \[12, 24\], expected \[36, 24\] for ours of shape \[12, 24\]",
    ),
    "rows beyond the end": (
        weight(KEY, {"name": WK, "rows": [1, 13]}),
        r"rows \[1, 13\] of the 12 rows of layers.0.attn.wk.weight are not the 12 of ours",
    ),
    "too few rows": (
        weight(KEY, {"name": WK, "rows": [0, 4]}),
        r"rows \[0, 4\] of the 12 rows .* are not the 12 of ours",
    ),
    "rows that are none": (
        weight(KEY, {"name": WK, "rows": [4, 4]}),
        r"rows must be \[START, STOP\] .* got \[4, 4\]",
    ),
    "rows that are no numbers": (weight(KEY, {"name": WK, "rows": "0:4"}), r"rows must be .* got '0:4'"),
    "rows and parts": (
        weight(KEY, {"name": WK, "rows": [0, 4], "part": 0, "n_parts": 1}),
        r"either rows or part",
    ),
    "part alone": (weight(KEY, {"name": WK, "part": 0}), r"part and n_parts go together"),
    "part beyond": (weight(KEY, {"name": WK, "part": 3, "n_parts": 3}), r"part must be .* got 3 of 3"),
    "part is true": (weight(KEY, {"name": WK, "part": True, "n_parts": 3}), r"part must be .* got True of 3"),
    "no name": (weight(QUERY, {"transposed": True}), AT + "it lacks 'name'"),
    "unknown option": (
        weight(QUERY, {"name": WQ, "row": [0, 1]}),
        AT + r"it has unknown 'row'; known are n_parts, name",
    ),
    "a number": (weight(QUERY, 3), AT + r'must be a name, \{"name": NAME, .* got 3'),
    "name is a number": (weight(QUERY, {"name": 3}), AT + r"must be a name, .* got \{'name': 3\}"),
    "transposed is a word": (weight(QUERY, {"name": WQ, "transposed": "yes"}), AT + "must be a name, "),
    "no block in theirs": (
        weight(QUERY, "layers.0.attn.wq.weight"),
        AT + r"'layers.0.attn.wq.weight' lacks the \{i\} that 'blocks.\{i\}.attention.query.weight' has",
    ),
    "no block in ours": (
        weight("blocks.0.attention.query.weight", WQ),
        r"'blocks.0.attention.query.weight' lacks the \{i\} that 'layers.\{i\}.attn.wq.weight' has",
    ),
    "twice": (
        weight("blocks.1.attention.query.weight", "layers.1.attn.wq.weight"),
        r'"weights" gives blocks.1.attention.query.weight twice, the second time as \'blocks.1',
    ),
    "an entry is missing": (
        weight(QUERY, None),
        r'"weights" has no entry for blocks.\{i\}.attention.query.weight',
    ),
    "head of a tied decoder": (
        lambda document: (
            field("tie_embeddings", True)(document),
            weight("head.weight", {"name": "out.weight"})(document),
        ),
        r"entry 'head.weight': with tie_embeddings it must be a name, got",
    ),
    "a convention of another name": (
        lambda document: document.update(conventions={"positions": 1}),
        r'"conventions" has unknown \'positions\'; known are positions_follow_mask',
    ),
    "a convention that is no truth value": (
        lambda document: document.update(conventions={"positions_follow_mask": 1}),
        r'"conventions": positions_follow_mask must be true or false, got 1',
    ),
    "conventions in a list": (
        lambda document: document.update(conventions=[]),
        r'"conventions" must be an object',
    ),
    "one parameter for two": (
        weight("blocks.{i}.attention.value.weight", WK),
        r'no entry of "weights" mentions layers.0.attn.wv.weight, layers.1.attn.wv.weight; each parameter',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_map_is_refused_with_file_and_entry(name: str, tmp_path: Path) -> None:
    edit, message = WRONG[name]
    document = json.loads((FOREIGN / "torch_nn_decoder.json").read_text())
    edit(document)
    path = write(tmp_path / "mine.json", document)
    with pytest.raises(MapError, match=message) as refused:
        read_map(path, torch_nn_decoder.correct())
    assert str(refused.value).startswith(f"{path}: ")


def test_a_file_that_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    module = torch_nn_decoder.correct()
    with pytest.raises(MapError, match=r"gone\.json: is no map: cannot read .*: No such file"):
        read_map(tmp_path / "gone.json", module)
    with pytest.raises(MapError, match=r"bad\.json: is no map: .* is not valid JSON: "):
        read_map(write(tmp_path / "bad.json", '{"config": '), module)
    with pytest.raises(MapError, match=r"list\.json: is no map: .* must hold a JSON object, got list"):
        read_map(write(tmp_path / "list.json", "[]"), module)


def test_an_untied_head_under_a_tied_map_is_noted_for_the_tying_contract() -> None:
    file = FOREIGN / "torch_nn_decoder_tied.json"
    assert read_map(file, torch_nn_decoder.untied()).second_head == "out.weight"
    assert read_map(file, torch_nn_decoder.correct_tied()).second_head is None
    assert read_map(file, torch_nn_decoder.correct_tied()).positions_follow_mask


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            weight(
                "blocks.{i}.attention.value.weight",
                {"name": "transformer.h.{i}.attn.c_attn.weight", "rows": [18, 36]},
            ),
            (
                r"blocks.0.attention.key.weight and blocks.0.attention.value.weight both lie in rows 18 to 35 of "
                r"transformer.h.0.attn.c_attn.weight"
            ),
        ),
        (
            weight(
                "blocks.{i}.attention.key.weight",
                {"name": "transformer.h.{i}.attn.c_attn.weight", "rows": [17, 35]},
            ),
            r"both lie in rows 17 to 17 of",
        ),
    ],
    ids=["the same rows", "one row"],
)
def test_rows_that_overlap_are_named(edit: Edit, message: str, tmp_path: Path) -> None:
    weights: dict[str, object] = copy.deepcopy(NANOGPT)
    for index in "01":
        del weights[f"blocks.{index}.attention.value.weight"]
    weights["blocks.{i}.attention.value.weight"] = {
        "name": "transformer.h.{i}.attn.c_attn.weight",
        "rows": [36, 54],
    }
    document = {"config": CASES["nanogpt without biases"].config.to_dict(), "weights": weights}
    edit(document)
    with pytest.raises(MapError, match=message):
        read_map(write(tmp_path / "nano.json", document), nanogpt_style.build_without_bias())


@pytest.mark.parametrize(
    ("n_rows", "start", "message"),
    [
        (40, 0, r"rows 31 to 39 of embedding.weight are none of our tensors"),
        (40, 9, r"rows 0 to 8 of embedding.weight are none of our tensors"),
    ],
    ids=["after", "before"],
)
def test_rows_that_nobody_takes_are_named(n_rows: int, start: int, message: str, tmp_path: Path) -> None:
    module = stranger(MODERN)
    names = dict(module.named_parameters())
    module.embedding.weight = nn.Parameter(torch.ones(n_rows, 24))
    weights: dict[str, object] = {name: name for name in names}
    weights["embedding.weight"] = {"name": "embedding.weight", "rows": [start, start + 31]}
    path = write(tmp_path / "padded.json", {"config": MODERN.to_dict(), "weights": weights})
    with pytest.raises(MapError, match=message):
        read_map(path, module)
