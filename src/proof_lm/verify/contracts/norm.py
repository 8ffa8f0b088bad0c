"""The normalization formula, at every scale of input."""

from collections.abc import Iterator

import torch

from proof_lm import oracle
from proof_lm.dims import Float, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ProofSubject
from proof_lm.verify.tolerance import rounding_bound
from proof_lm.verify.verdict import EXACT, Measurement

SCALES = (1e-6, 3e-3, 1.0, 1e4)  # below and near sqrt(eps), where the place of eps shows; ordinary; outliers


def check_norms(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Every normalization layer, with random gain and bias, on inputs of rms 1e-6 to 1e4 that have a mean.

    Against the oracle's formula with the config's eps; and an edit of one position must leave the others
    bit-identical, so that statistics are per position.
    """
    config = subject.config
    for name in subject.norms:
        random = probe.random(f"norm {name}")
        parameters = dict(subject.module.get_submodule(name).named_parameters())
        edits = {key: torch.from_numpy(random.standard_normal(config.d_model)) for key in parameters}
        inputs = torch.from_numpy(random.standard_normal((len(SCALES), 3, config.d_model)) + 0.7)
        inputs = inputs * torch.tensor(SCALES, dtype=torch.float64)[:, None, None]
        yield from _check_formula(subject, name, edits, inputs)
        edited = inputs.clone()
        edited[:, 1] += inputs[:, 1].flip(-1)
        with torch.no_grad():
            before = subject.run_pointwise(name, inputs, edits)
            moved = (subject.run_pointwise(name, edited, edits) - before).abs().amax(-1)
        yield Measurement("-", "max |change of other positions|", float(moved[:, [0, 2]].max()), EXACT, name)
        yield Measurement("-", "min |change of the edited position|", float(moved[:, 1].min()), None, name)


def _check_formula(
    subject: ProofSubject, name: str, edits: dict[str, Tensor], inputs: Float[Tensor, "S T D"]
) -> Iterator[Measurement]:
    config = subject.config
    weight, bias = edits["weight"].numpy(), edits["bias"].numpy() if "bias" in edits else None
    with torch.no_grad():
        found = subject.run_pointwise(name, inputs, edits)
    for scale, rows, result in zip(SCALES, inputs, found, strict=True):
        if config.norm == "layernorm":
            expected, _ = oracle.layer_norm_forward(rows.numpy(), weight, bias, eps=config.norm_eps)
        else:
            expected, _ = oracle.rms_norm_forward(rows.numpy(), weight, eps=config.norm_eps)
        wanted = torch.from_numpy(expected)
        # x - mean cancels: an entry errs by u times the largest entry, which the gain can enlarge
        bound = rounding_bound(2 * config.d_model + 6, float(wanted.abs().max()), condition=2.0)
        where = f"{name}, inputs of rms {scale:g}"
        yield Measurement("-", "max |norm - formula|", float((result - wanted).abs().max()), bound, where)


NORM = Contract(
    "norm-formula",
    "LayerNorm and RMSNorm follow their formula, for each position alone and at every input scale.",
    frozenset({"parts"}),
    check_norms,
)
