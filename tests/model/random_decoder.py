"""A decoder and its weights as NumPy arrays, drawn so that no gain, bias or table can be left out unseen."""

import numpy as np
import torch

from proof_lm.config import DecoderConfig
from proof_lm.functional import AttentionBackend
from proof_lm.model import ProofLM
from proof_lm.oracle import parameter_shapes

BACKENDS: list[AttentionBackend] = ["explicit", "fused"]


def random_weights(config: DecoderConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Matrices of spread 1 / sqrt(in), tables and biases of spread 0.4, gains around 1: nothing is 0 or 1."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in parameter_shapes(config).items():
        is_gain = name.endswith("norm.weight")
        is_matrix = len(shape) == 2 and "embedding" not in name
        spread = shape[1] ** -0.5 if is_matrix else 0.4
        weights[name] = float(is_gain) + spread * rng.standard_normal(shape)
    return weights


def random_decoder(
    config: DecoderConfig, seed: int = 0, backend: AttentionBackend = "explicit"
) -> tuple[ProofLM, dict[str, np.ndarray]]:
    """A float64 model in eval mode, and the arrays that it was loaded from, by the names of the state dict."""
    weights = random_weights(config, seed)
    model = ProofLM(config, attention_backend=backend).double().eval()
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return model, weights


def random_ids(config: DecoderConfig, batch: int, time: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(config.vocab_size, (batch, time), generator=torch.Generator().manual_seed(seed))
