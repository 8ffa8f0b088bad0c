"""Rotary positions, measured from the attention scores that they make."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.attention_scores import MARKERS, SEEN, recover_scores
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject
from proof_lm.verify.tolerance import UNIT_ROUNDOFF, rounding_bound
from proof_lm.verify.verdict import Bound, Measurement

FARTHEST = 3000  # positions probed: far above 256 and 2048, where bfloat16 and float16 stop counting
N_PAIRS = 12  # pairs of positions


def check_rope(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Scores of random queries and keys are read off every layer's output (all heads, positions up to 3000).

    Each must equal q . R(angles of the distance) k / sqrt(H), with the angles of the formula in the declared
    layout; must stay the same when both positions move by the same amount; and the rotated key, read off in
    an orthonormal basis of queries, must have the key's norm.
    """
    if subject.config.d_model <= MARKERS:
        raise Inapplicable(f"d_model is {subject.config.d_model}: scores cannot be read off the output")
    if subject.window is not None and subject.window < SEEN:
        raise Inapplicable(f"the window is {subject.window}: scores cannot be read off the output")
    positions = _position_pairs(probe)
    for path in subject.paths:
        for layer in range(subject.config.n_layers):
            yield from _check_scores(subject, probe, layer, positions, path)
            yield _check_norm(subject, probe, layer, path)


def _position_pairs(probe: Probe) -> Int[Tensor, "P 2"]:
    """(query position, key position): near and far, the query always behind the key."""
    positions = np.sort(probe.random("rope positions").integers(0, FARTHEST, size=(N_PAIRS, 2)), axis=1)[
        :, ::-1
    ]
    positions[:3] = [[1, 0], [2, 0], [9, 2]]
    return torch.from_numpy(positions.copy())


def _check_scores(
    subject: ProofSubject, probe: Probe, layer: int, positions: Int[Tensor, "P 2"], path: str
) -> Iterator[Measurement]:
    config, random = subject.config, probe.random(f"rope vectors {layer}")
    queries, keys = (
        torch.from_numpy(random.standard_normal((len(positions), config.head_width))) for _ in range(2)
    )
    query_at, key_at = positions.unbind(1)
    where = f"layer {layer}"
    scores = recover_scores(subject, layer, queries, keys, query_at, key_at, path)
    expected = _formula(config, queries, keys, query_at - key_at)
    error = (scores - expected[:, None]).abs()
    yield Measurement(
        path,
        "max |score - formula|",
        float(error.max()),
        _score_bound(config, queries, keys),
        _place(where, error, positions),
    )
    moved = recover_scores(subject, layer, queries, keys, query_at + FARTHEST, key_at + FARTHEST, path)
    error = (moved - scores).abs()
    yield Measurement(
        path,
        "max |score at p, r - score at p+s, r+s|",
        float(error.max()),
        _score_bound(config, queries, keys),
        _place(where, error, positions),
    )


def _check_norm(subject: ProofSubject, probe: Probe, layer: int, path: str) -> Measurement:
    config, random = subject.config, probe.random(f"rope norm {layer}")
    key = torch.from_numpy(random.standard_normal(config.head_width))
    basis = torch.eye(config.head_width, dtype=torch.float64)
    keys = key.expand_as(basis).contiguous()
    at = torch.full((config.head_width,), 37)
    scores = recover_scores(subject, layer, basis, keys, at, at - 29, path)
    norms = (scores * math.sqrt(config.head_width)).norm(dim=0)
    error = (norms - key.norm()).abs()
    bound = _score_bound(config, basis, keys)
    widened = Bound(
        bound.rounding * config.head_width, bound.fault * config.head_width, f"{bound.derivation}, times H"
    )
    return Measurement(
        path,
        "max | |rotated key| - |key| |",
        float(error.max()),
        widened,
        f"layer {layer}, head {int(error.argmax())}",
    )


def _formula(
    config: DecoderConfig,
    queries: Float[Tensor, "P H"],
    keys: Float[Tensor, "P H"],
    distance: Int[Tensor, " P"],
) -> Float[Tensor, " P"]:
    """sum over pairs of q . k turned back by distance * theta^(-2i/H), over sqrt(H), in NumPy."""
    half = config.head_width // 2
    dims = np.arange(config.head_width)
    first, second = (
        (dims[0::2], dims[1::2]) if config.rope_layout == "interleaved" else (dims[:half], dims[half:])
    )
    angles = distance.numpy()[:, None] * config.rope_theta ** (-2.0 * np.arange(half) / config.head_width)
    q, k = queries.numpy(), keys.numpy()
    q_complex, k_complex = q[:, first] + 1j * q[:, second], k[:, first] + 1j * k[:, second]
    scores = (np.conj(k_complex) * q_complex * np.exp(1j * angles)).real.sum(1)
    return torch.from_numpy(scores / math.sqrt(config.head_width))


def _score_bound(config: DecoderConfig, queries: Float[Tensor, "P H"], keys: Float[Tensor, "P H"]) -> Bound:
    """Rounding of a score: the chain of d_model + H + S products, and angles of up to 2 * FARTHEST times the
    fastest frequency (1, unless the base is below 1).

    The angle of position p is right to 4 u p (its frequency and the product are each rounded, in both
    computations), and an angle's error moves a score by at most |q||k| / sqrt(H) times it, for query and key.
    """
    magnitude = float((queries.norm(dim=1) * keys.norm(dim=1)).max()) / math.sqrt(config.head_width)
    fastest = max(1.0, config.rope_theta ** (2.0 / config.head_width - 1.0))
    angle_error = 2 * 4 * UNIT_ROUNDOFF * 2 * FARTHEST * fastest * magnitude
    # log(w / w') of weights with relative errors: absolute errors of the same size, whatever the score
    return rounding_bound(config.d_model + config.head_width + 6, max(magnitude, 1.0), extra=angle_error)


def _place(where: str, error: Float[Tensor, "P N"], positions: Int[Tensor, "P 2"]) -> str:
    pair, head = divmod(int(error.argmax()), error.shape[1])
    query_at, key_at = positions[pair].tolist()
    return f"{where}, head {head}, query at {query_at}, key at {key_at}"


ROPE = Contract(
    "rope",
    "Rotation keeps norms, scores follow the angle formula and depend on the distance alone.",
    frozenset({"rope", "parts", "position ids"}),
    check_rope,
)
