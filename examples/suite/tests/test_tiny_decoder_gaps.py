"""What ``proof-lm mutants --suite`` missed in the first suite: padding, rows of a batch, the loss, and the formula."""

import copy

import torch
from tiny_decoder import TinyDecoder
from torch import nn


def scattered() -> TinyDecoder:
    """Weights on which a fault shows: no gain is 1, no attention is uniform; in float64."""
    torch.manual_seed(0)
    model = TinyDecoder().double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) / (weight.shape[1] ** 0.5 if weight.dim() > 1 else 3.0))
            if weight.dim() == 1:
                weight.add_(1.0)
        model.token_embeddings.weight.normal_()
    return model


def by_hand(model: TinyDecoder, ids: list[int]) -> torch.Tensor:
    """The logits of one row, token by token and head by head, as the papers have it."""
    stream = [model.token_embeddings.weight[token] for token in ids]

    def norm(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).sum() / x.numel() + 1e-5).sqrt() * layer.weight

    def turned(x: torch.Tensor, position: int) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(-1, 2).contiguous())
        angle = position / 10000.0 ** (torch.arange(len(pairs)) / len(pairs)).double()
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten()

    for block in model.layers:
        attention = block.attn
        rows = [norm(block.ln1, x) for x in stream]
        queries, keys, values = (
            [(layer.weight @ x).split(4) for x in rows]
            for layer in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        for t in range(len(ids)):
            heads = []
            for head in range(6):
                query = turned(queries[t][head], t)
                scores = torch.stack([query @ turned(keys[s][head // 2], s) / 2.0 for s in range(t + 1)])
                weights = scores.exp() / scores.exp().sum()
                heads.append(sum(weights[s] * values[s][head // 2] for s in range(t + 1)))
            stream[t] = stream[t] + attention.output_proj.weight @ torch.cat(heads)
        for t, x in enumerate(stream):
            h = norm(block.ln2, x)
            gate = block.ffn.w1.weight @ h
            fed = gate / (1.0 + (-gate).exp()) * (block.ffn.w3.weight @ h)
            stream[t] = x + block.ffn.w2.weight @ fed
    return torch.stack([model.lm_head.weight @ norm(model.ln_final, x) for x in stream])


def test_logits_and_gradients_are_those_of_the_formula() -> None:
    model = scattered()
    ids = torch.randint(31, (1, 19))
    weights = torch.randn(1, 19, 31, dtype=torch.float64)
    logits = model(ids)[0]
    expected = torch.stack([by_hand(model, row.tolist()) for row in ids])
    torch.testing.assert_close(logits, expected)
    found = torch.autograd.grad((weights * logits).sum(), list(model.parameters()))
    wanted = torch.autograd.grad((weights * expected).sum(), list(model.parameters()))
    for gradient, by_formula in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, by_formula)


def test_a_row_is_what_it_is_alone_whatever_the_batch_and_the_length() -> None:
    model = scattered()
    ids = torch.randint(31, (7, 19))
    alone = torch.stack([model(row[None])[0][0] for row in ids])
    for n_rows, n_tokens in ((7, 19), (6, 6), (6, 19), (7, 6), (1, 1), (2, 17)):
        together = model(ids[:n_rows, :n_tokens])[0]
        torch.testing.assert_close(together, alone[:n_rows, :n_tokens])


def test_scores_may_be_large() -> None:
    model = scattered()
    with torch.no_grad():
        model.layers[0].attn.q_proj.weight.mul_(1e4)
    ids = torch.randint(31, (1, 11))
    other = ids.clone()
    other[0, 7:] = (other[0, 7:] + 1) % 31
    before, after = model(ids)[0], model(other)[0]
    assert before.isfinite().all()
    assert torch.equal(before[:, :7], after[:, :7])


def test_padding_is_seen_by_nobody() -> None:
    model = scattered()
    ids = torch.randint(31, (6, 13))
    for n_rows in (3, 6):
        for side in ("left", "right"):
            places = torch.arange(13)[None]
            pads = torch.arange(n_rows)[:, None]
            real = places >= pads if side == "left" else places < 13 - pads
            given = ids[:n_rows].clone()
            logits = model(given, attention_mask=real.long())[0]
            assert torch.equal(given, ids[:n_rows])
            for row in range(n_rows):
                alone = model(ids[row][real[row]][None])[0][0]
                torch.testing.assert_close(logits[row][real[row]], alone)


def test_the_loss_is_the_mean_over_labels_that_count() -> None:
    model = scattered()
    ids, labels = torch.randint(31, (2, 3, 13))
    logits = model(ids)[0].detach().requires_grad_()
    for n_ignored in ((0, 0, 0), (1, 5, 12), (13, 0, 0)):
        given = labels.clone()
        for row, count in enumerate(n_ignored):
            given[row, :count] = -100
        counted = given != -100
        picked = logits.log_softmax(-1).gather(-1, given.clamp(min=0)[..., None])[..., 0]
        expected = -picked[counted].sum() / counted.sum()
        before = given.clone()
        model.zero_grad()
        loss = model(ids, given)[1]
        torch.testing.assert_close(loss, expected)
        assert torch.equal(given, before)
        loss.backward()
        (upstream,) = torch.autograd.grad(expected, logits)
        through = torch.autograd.grad((model(ids)[0] * upstream).sum(), model.lm_head.weight)[0]
        torch.testing.assert_close(model.lm_head.weight.grad, through)


def test_a_call_changes_nothing() -> None:
    model = scattered()
    ids = torch.randint(31, (2, 7))
    state = copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    first = model(ids)[0]
    model(ids[:, :3])
    model(torch.randint(31, (2, 23), generator=torch.Generator()))
    model.train()
    trained = model(ids)[0]
    model.eval()
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(model(ids)[0], first)
    assert torch.equal(trained, first)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
