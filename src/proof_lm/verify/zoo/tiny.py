"""Any causal language model of transformers, small, with random weights on which faults show."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import nn

from proof_lm.errors import TargetError
from proof_lm.verify.zoo.overrides import OVERRIDES
from proof_lm.verify.zoo.shrink import shrunk

# one product a token: where experts take their tokens together, the shape of a token's product, and so its rounding,
# depends on what other tokens chose, and no bit can be asked to stay
EXPERTS = "batched_mm"
N_NEAR = 5  # names that an unknown one is answered with


def causal_classes() -> tuple[str, ...]:
    """Names of the causal language models that the installed transformers has, each once.

    Raises:
        TargetError: transformers is not installed.
    """
    try:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    except ImportError as error:
        raise TargetError("hf-tiny:CLASS needs transformers: pip install 'proof-lm[hf]'") from error
    return tuple(sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()), key=str.lower))


def require_class(name: str) -> None:
    """Refuses what is no causal language model of transformers.

    Raises:
        TargetError: it is none; the message has the nearest names.
    """
    known = causal_classes()
    if name in known:
        return
    by_lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower, N_NEAR, 0.5)
    hint = (
        f"near it are {', '.join(by_lower[other] for other in near)}" if near else "none has a similar name"
    )
    raise TargetError(f"transformers has no causal language model {name!r} among its {len(known)}; {hint}")


def initial(name: str) -> nn.Module:
    """The model of that class as transformers initializes it, small; needs no network.

    Raises:
        TargetError: there is no such class, or it cannot be made this small.
    """
    require_class(name)
    import transformers

    try:
        model_class: Any = getattr(transformers, name)
        config = shrunk(model_class.config_class, OVERRIDES.get(name))
        config._experts_implementation = EXPERTS
        model: nn.Module = model_class(config)
    except Exception as error:
        raise TargetError(f"a small {name} cannot be made: {type(error).__name__}: {error}") from error
    return model.eval()


def tiny(name: str, seed: int) -> nn.Module:
    """The same with weights on which faults show: no gain is 1, no bias is 0, no attention is uniform.

    Matrices are N(0, 1/d) for d columns, embeddings N(0, 1). Vectors keep their initial value v, since it may be
    the logarithm of a decay or the unit of a scale, and get N(0, (0.3 v)^2) added; N(0, 0.3^2) where v is 0. What
    does not learn, such as a table of sines, stays.

    Raises:
        TargetError: as :func:`initial`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = initial(name)
    embedding = model.get_input_embeddings()
    if isinstance(embedding, nn.Embedding):
        embedding.padding_idx = None  # every id is a token here, and learns
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                parameter.add_(0.3 * noise * torch.where(parameter == 0.0, 1.0, parameter))
            else:
                is_embedding = "embed" in key or "wte" in key
                parameter.copy_(noise if is_embedding else noise / parameter.shape[-1] ** 0.5)
    return model
