"""Every field of the config takes effect."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from proof_lm import oracle, sheet
from proof_lm.config import DecoderConfig
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement

ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu")


def check_config_fields(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """For each field in turn, a module of the config with that field changed.

    Where the change keeps every parameter's shape, the module gets the same weights, and its logits are those of
    the oracle for the changed config; they differ from those of the config as it was, if the oracle's do (reach).
    Where it does not, its parameters are as many as the closed formula says.
    """
    if subject.build_with is None:
        raise Inapplicable("nothing says how to make one of another config")
    if probe.is_large:
        raise Inapplicable("too large to be made once a field")
    config, weights = subject.config, subject.weights()
    ids = probe.tokens("config fields", 2, probe.n_short)
    before = oracle.decoder_forward(config, weights, ids.numpy()).logits
    for changes in _changes(config, ids.shape[1]):
        changed = config.with_(**changes)
        ((field, value),) = changes.items()
        where = f"{field} = {value}"
        module = _made(subject, changed)
        if sheet.tensors(changed) != sheet.tensors(config):
            off = abs(sum(p.numel() for p in module.parameters()) - sheet.parameter_count(changed))
            yield Measurement("-", "|parameters - closed formula|", float(off), EXACT, where)
            continue
        with subject_runs():
            module.load_state_dict(subject.native.state_dict())
        other = subject.swapped(module.double().eval())
        expected = oracle.decoder_forward(changed, weights, ids.numpy()).logits
        must_move = abs(expected - before).max() > probe.logit_bound.rounding
        for path in subject.paths:
            found = other.logits(ids, path)
            error = float((found - torch.from_numpy(expected)).abs().max())
            yield Measurement(
                path, "max |logit - oracle| as a field changes", error, probe.logit_bound, where
            )
            if must_move:
                moved = float((found - torch.from_numpy(before)).abs().max())
                yield Measurement(path, "max |change as a field changes|", moved, None, where)


def _made(subject: Subject, config: DecoderConfig) -> nn.Module:
    assert subject.build_with is not None
    with torch.random.fork_rng(), subject_runs():
        return subject.build_with(config)


def _changes(config: DecoderConfig, n_tokens: int) -> Iterator[dict[str, Any]]:
    """One change of each field that has another value to take."""
    yield {"norm": "rmsnorm" if config.norm == "layernorm" else "layernorm"}
    yield {"norm_eps": 100.0 * config.norm_eps}
    yield {"activation": ACTIVATIONS[ACTIVATIONS.index(config.activation) - 1]}
    yield {"position": "none" if config.position == "rope" else "learned"}
    if config.position == "rope":
        yield {"rope_theta": 2.0 * config.rope_theta}
        yield {"rope_layout": "half" if config.rope_layout == "interleaved" else "interleaved"}
    if n_tokens > 2:
        yield {"sliding_window": 2 if config.sliding_window != 2 else 1}
    yield {"n_layers": config.n_layers + 1}
    yield {"d_ff": config.d_ff + 1}
    yield {"vocab_size": config.vocab_size + 1}
    if config.kv_heads > 1:
        yield {"n_kv_heads": 1}
    yield {"feed_forward": "gated" if config.feed_forward == "mlp" else "mlp"}
    for flag in ("attention_bias", "attention_out_bias", "feed_forward_bias", "tie_embeddings"):
        yield {flag: not getattr(config, flag)}
    if config.norm == "layernorm":
        yield {"norm_bias": not config.norm_bias}


CONFIG_FIELDS = Contract(
    "config-fields",
    "Every field of the config takes effect, and the one that it names.",
    frozenset({"config", "weights", "construction"}),
    check_config_fields,
    grows=False,
    once=True,
)
