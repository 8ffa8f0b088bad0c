"""What ``proof-lm mutants --suite`` missed in the first suite: the cache, padding, and gradients among it."""

import torch

from proof_lm import oracle
from proof_lm.model import DecoderConfig, ProofLM

CONFIG = DecoderConfig(
    vocab_size=31, context_length=24, n_layers=2, d_model=24, n_heads=6, n_kv_heads=3, d_ff=37
)


def scattered() -> ProofLM:
    """Weights on which a fault shows: no gain is 1, no bias is 0, no attention is uniform; in float64."""
    torch.manual_seed(0)
    model = ProofLM(CONFIG).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            if weight.dim() == 1:
                weight.copy_(0.3 * noise + float("norm.weight" in name))
            else:
                weight.copy_(noise if "embedding" in name else noise / weight.shape[1] ** 0.5)
    return model


def test_a_cache_changes_nothing_however_the_row_is_cut() -> None:
    model = scattered()
    ids = torch.randint(31, (3, 13))
    whole = model(ids)[0]
    for lengths in ((13,), (5, 8), (1, 1, 11), (1,) * 13):
        cache = model.new_cache(3)
        with torch.no_grad():
            pieces = [model(piece, cache=cache)[0] for piece in ids.split(lengths, 1)]
        torch.testing.assert_close(torch.cat(pieces, 1), whole)
        torch.testing.assert_close(model(ids)[0], whole)


def test_padding_is_seen_by_nobody_with_and_without_a_cache() -> None:
    model = scattered()
    ids = torch.randint(31, (6, 13))
    real = torch.arange(13)[None] >= torch.arange(6)[:, None]
    for n_rows in (3, 6):
        rows, mask = ids[:n_rows].clone(), real[:n_rows]
        cache = model.new_cache(n_rows)
        with torch.no_grad():
            pieces = [
                model(rows[:, :9], padding_mask=mask[:, :9], cache=cache)[0],
                model(rows[:, 9:], cache=cache)[0],
            ]
        for logits in (model(rows, padding_mask=mask)[0], torch.cat(pieces, 1)):
            for row in range(n_rows):
                alone = model(ids[row : row + 1][:, mask[row]])[0][0]
                torch.testing.assert_close(logits[row][mask[row]], alone)
        assert torch.equal(rows, ids[:n_rows])


def test_gradients_are_those_of_the_oracle() -> None:
    model = scattered()
    ids, labels = torch.randint(31, (2, 3, 13))
    counted = torch.rand(3, 13) < 0.6
    loss = model(ids, labels, counted)[1]
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    arrays = (ids.numpy(), labels.numpy(), counted.numpy())
    trace = oracle.decoder_forward(CONFIG, weights, *arrays)
    expected = oracle.decoder_backward(CONFIG, weights, trace)
    torch.testing.assert_close(loss.item(), float(trace.loss))
    loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, torch.from_numpy(expected[name]))
