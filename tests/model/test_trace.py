"""What other tools make of the model by tracing it gives the eager logits for other tokens too."""

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from proof_lm.functional import AttentionBackend
from proof_lm.model import ProofLM
from sizes import MODERN


class Logits(nn.Module):
    def __init__(self, model: ProofLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.model(token_ids)[0]


@pytest.mark.parametrize("backend", ["explicit", "fused"])
@pytest.mark.parametrize("how", ["traced", "exported"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_program_is_the_model(how: str, backend: AttentionBackend) -> None:
    model = ProofLM(MODERN, attention_backend=backend).eval()
    first, second = torch.randint(MODERN.vocab_size, (2, 3, 7))
    jaxtyping.config.update("jaxtyping_disable", True)  # sizes are tensors while a model is traced
    if how == "traced":
        program = torch.jit.trace(Logits(model), (first,), check_trace=False)
    else:
        program = torch.export.export(Logits(model), (first,)).module()
    torch.testing.assert_close(program(second), model(second)[0])
