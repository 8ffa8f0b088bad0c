"""The same first suite, for ProofLM itself: shapes, a loss that falls, no look ahead."""

import torch

from proof_lm.model import DecoderConfig, ProofLM

CONFIG = DecoderConfig(
    vocab_size=31, context_length=24, n_layers=2, d_model=24, n_heads=6, n_kv_heads=3, d_ff=37
)


def test_logits_have_the_vocabulary_as_last_dimension() -> None:
    logits, loss = ProofLM(CONFIG)(torch.arange(10).reshape(2, 5))
    assert logits.shape == (2, 5, 31)
    assert loss is None


def test_the_loss_falls() -> None:
    torch.manual_seed(0)
    model = ProofLM(CONFIG)
    ids = torch.randint(31, (4, 13))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = model(ids[:, :-1], ids[:, 1:])[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_later_token_moves_no_earlier_logit() -> None:
    torch.manual_seed(0)
    model = ProofLM(CONFIG)
    ids = torch.randint(31, (1, 11))
    other = ids.clone()
    other[0, 7] = (other[0, 7] + 1) % 31
    before, after = model(ids)[0], model(other)[0]
    torch.testing.assert_close(after[0, :7], before[0, :7])
