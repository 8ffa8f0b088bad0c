"""Which KV head a query head reads, seen by ablation."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Float, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ProofSubject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest


def check_grouped_heads(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """In a copy of every attention layer each query head's output is shown apart, and one head is silenced.

    With the value rows of KV head g at zero exactly the query heads h with floor(h / (N / K)) = g change;
    the others keep every bit. The same with its key rows. With the query rows of head h at zero only head h
    changes.
    """
    config = subject.config
    for path in subject.paths:
        for layer in range(config.n_layers):
            hidden = torch.from_numpy(probe.random(f"heads {layer}").standard_normal((2, 5, config.d_model)))
            heads = torch.arange(config.n_heads)
            belongs = heads[:, None] // config.group_size == torch.arange(config.kv_heads)[None]
            yield from _ablate(subject, layer, path, hidden, "value", belongs)
            if subject.window == 1:  # one key has the weight 1, whatever it is
                continue
            yield from _ablate(subject, layer, path, hidden, "key", belongs)
            yield from _ablate(
                subject, layer, path, hidden, "query", torch.eye(config.n_heads, dtype=torch.bool)
            )


def _ablate(
    subject: ProofSubject,
    layer: int,
    path: str,
    hidden: Float[Tensor, "B T D"],
    kind: str,
    belongs: Tensor,
) -> Iterator[Measurement]:
    """Silences each head of one kind; ``belongs[h, g]`` says whether query head h should notice g."""
    before = _head_outputs(subject, layer, path, hidden, {})
    stray, reach = Largest(), Smallest()
    own = dict(subject.module.get_submodule(f"blocks.{layer}.attention").named_parameters())
    head_dim = subject.config.head_width
    for silenced in range(belongs.shape[1]):
        rows = slice(silenced * head_dim, (silenced + 1) * head_dim)
        edits: dict[str, Tensor] = {}
        for name in (f"{kind}.weight", f"{kind}.bias"):
            if name in own:
                edits[name] = own[name].detach().clone()
                edits[name][rows] = 0.0
        moved = (_head_outputs(subject, layer, path, hidden, edits) - before).abs().amax((0, 1, 3))
        for head, change in enumerate(moved.tolist()):
            where = f"layer {layer}: query head {head}, {kind} head {silenced} silenced"
            if belongs[head, silenced]:
                reach.see(change, where)
            else:
                stray.see(change, where)
    yield Measurement(
        path, f"max |change of heads that read another {kind} head|", stray.value, EXACT, stray.where
    )
    yield Measurement(
        path, f"min |change of heads that read the {kind} head|", reach.value, None, reach.where
    )


def _head_outputs(
    subject: ProofSubject,
    layer: int,
    path: str,
    hidden: Float[Tensor, "B T D"],
    edits: dict[str, Tensor],
) -> Float[Tensor, "B T N X"]:
    """Each query head's output (its first D dimensions, if it is wider), as many heads a pass as D has room for."""
    config = subject.config
    width = min(config.head_width, config.d_model)
    per_pass = config.d_model // width
    places = torch.arange(hidden.shape[1]).expand(hidden.shape[:2])
    shown = []
    for first in range(0, config.n_heads, per_pass):
        heads = range(first, min(first + per_pass, config.n_heads))
        out = torch.zeros(per_pass, width, config.n_heads, config.head_width, dtype=torch.float64)
        for place, head in enumerate(heads):
            out[place, :, head, :width] = torch.eye(width, dtype=torch.float64)
        weight = torch.zeros(config.d_model, config.n_heads * config.head_width, dtype=torch.float64)
        weight[: per_pass * width] = out.flatten(2).flatten(0, 1)
        name = f"blocks.{layer}.attention"
        planted: dict[str, Tensor | float] = {**edits, "out.weight": weight, "out.bias": 0.0}
        with torch.no_grad():
            output = subject.run_layer(name, hidden, places, path, planted)[..., : len(heads) * width]
        shown.append(output.unflatten(-1, (len(heads), width)))
    return torch.cat(shown, 2)


GROUPED_HEADS = Contract(
    "grouped-heads",
    "Query head h reads KV head floor(h / (n_heads / n_kv_heads)), and no other head.",
    frozenset({"parts"}),
    check_grouped_heads,
)
