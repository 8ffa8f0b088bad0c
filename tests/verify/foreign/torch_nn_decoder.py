"""A decoder as somebody else would write it with torch.nn, and nineteen faulty ones.

It knows nothing of ProofLM: its names, its output object and its conventions (an attention mask with 1 for a
real token, labels that are shifted inside) are its own. ``correct()`` and ``correct_tied()`` are right;
every function marked ``@fault`` builds the same decoder, with the same weights, and one fault.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

VOCABULARY, CONTEXT, LAYERS = 31, 29, 2
WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN_WIDTH = 24, 6, 3, 4, 37
EPS, THETA = 1e-5, 10000.0


@dataclass
class Output:
    logits: Tensor  # (B, T, V)
    loss: Tensor | None = None


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return normed.to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(WIDTH, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)

    def forward(self, x: Tensor, visible: Tensor, positions: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)  # (B, heads, T, HEAD_DIM)
            for projection in (self.wq, self.wk, self.wv)
        )
        q, k = self.place(q, k, positions)
        k, v = self.expand(k), self.expand(v)
        weights = self.weigh(self.score(q, k), visible[:, None])
        return self.wo(self.merge(self.mix(weights, v)))

    def place(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotate(q, positions), self.rotate(k, positions)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Dimension i turns together with dimension i + HEAD_DIM / 2."""
        cos, sin = turns(positions, x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def expand(self, x: Tensor) -> Tensor:
        """Neighbouring query heads share a key/value head."""
        return x.repeat_interleave(HEADS // KV_HEADS, dim=1)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2) * HEAD_DIM**-0.5

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Softmax over what is visible; a row that sees nothing gets zeros, and no NaN in its gradient."""
        scores = scores.masked_fill(~visible, -torch.inf)
        scores = scores.masked_fill(~visible.any(-1, keepdim=True), 0.0)
        return scores.softmax(-1).masked_fill(~visible, 0.0)

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        return weights @ values

    def merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)


def turns(positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, (B, 1, T, HEAD_DIM / 2)."""
    wide = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(0, HEAD_DIM, 2, dtype=wide, device=positions.device) / HEAD_DIM
    angles = positions[:, None, :, None].to(wide) * THETA**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w_gate = nn.Linear(WIDTH, FFN_WIDTH, bias=False)
        self.w_up = nn.Linear(WIDTH, FFN_WIDTH, bias=False)
        self.w_down = nn.Linear(FFN_WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_down(nnf.silu(self.w_gate(x)) * self.w_up(x))


class Layer(nn.Module):
    def __init__(self, attention: type[Attention], feed_forward: type[FeedForward]) -> None:
        super().__init__()
        self.norm1 = RMSNorm()
        self.attn = attention()
        self.norm2 = RMSNorm()
        self.ffn = feed_forward()

    def forward(self, x: Tensor, visible: Tensor, positions: Tensor) -> Tensor:
        x = self.skip(x) + self.attn(self.norm1(x), visible, positions)
        return self.skip(x) + self.ffn(self.norm2(x))

    def skip(self, x: Tensor) -> Tensor:
        return x


class Decoder(nn.Module):
    def __init__(
        self,
        attention: type[Attention] = Attention,
        feed_forward: type[FeedForward] = FeedForward,
        layer: type[Layer] = Layer,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.tok = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(layer(attention, feed_forward) for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.out.weight = self.tok.weight

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Output:
        if input_ids.shape[1] > CONTEXT:
            raise ValueError(f"{input_ids.shape[1]} tokens exceed the context of {CONTEXT}")
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        real = attention_mask.bool()
        if position_ids is None:
            position_ids = self.positions(real)
        visible = self.visible(real)
        x = self.tok(input_ids)
        for layer in self.layers:
            x = layer(x, visible, position_ids)
        logits = self.out(self.finish(x))
        if labels is None:
            return Output(logits)
        loss = nnf.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return Output(logits, loss)

    def positions(self, real: Tensor) -> Tensor:
        return (real.cumsum(-1) - 1).clamp(min=0)

    def visible(self, real: Tensor) -> Tensor:
        """Which key each query sees, (B, T, T)."""
        length = real.shape[1]
        return torch.ones(length, length, dtype=torch.bool, device=real.device).tril() & real[:, None, :]

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


def draw(model: nn.Module) -> None:
    """Weights on which a fault shows: no gain is 1, no attention uniform."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(1.0 + 0.3 * noise)
            else:
                weight.copy_(noise if name == "tok.weight" else noise * weight.shape[1] ** -0.5)


def build(decoder: type[Decoder] = Decoder, **parts) -> Decoder:
    model = decoder(**parts)
    draw(model)
    return model.eval()


def correct() -> Decoder:
    return build()


def correct_tied() -> Decoder:
    """The twin of ``untied``: one matrix is table and head."""
    return build(tied=True)


FAULTS: dict[str, str] = {}
_FACTORIES: dict[str, Callable[[], Decoder]] = {}


def fault(factory: Callable[[], Decoder]) -> Callable[[], Decoder]:
    """Register a faulty decoder under the function's name, with hyphens, and its docstring's first line."""
    name = factory.__name__.replace("_", "-")
    FAULTS[name] = factory.__doc__.splitlines()[0]
    _FACTORIES[name] = factory
    return factory


def faulty(name: str) -> Decoder:
    return _FACTORIES[name]()


@fault
def no_causal_mask() -> Decoder:
    """Every query sees every real key, the future ones too."""

    class Faulty(Decoder):
        def visible(self, real: Tensor) -> Tensor:
            return real[:, None, :].expand(-1, real.shape[1], -1)

    return build(Faulty)


@fault
def mask_off_by_one() -> Decoder:
    """Every query sees the token that comes next."""

    class Faulty(Decoder):
        def visible(self, real: Tensor) -> Tensor:
            length = real.shape[1]
            ones = torch.ones(length, length, dtype=torch.bool, device=real.device)
            return ones.tril(diagonal=1) & real[:, None, :]

    return build(Faulty)


@fault
def leak_only_in_row_0() -> Decoder:
    """The first row of a batch sees the future; the others do not."""

    class Faulty(Decoder):
        def visible(self, real: Tensor) -> Tensor:
            visible = super().visible(real)
            visible[0] = real[0]
            return visible

    return build(Faulty)


@fault
def leak_only_for_long() -> Decoder:
    """Sequences of more than 16 tokens see the future; shorter ones do not."""

    class Faulty(Decoder):
        def visible(self, real: Tensor) -> Tensor:
            if real.shape[1] > 16:
                return real[:, None, :].expand(-1, real.shape[1], -1)
            return super().visible(real)

    return build(Faulty)


@fault
def heads_merged_without_transpose() -> Decoder:
    """(heads, tokens) is reshaped to (tokens, heads) without a transposition: tokens mix."""

    class Faulty(Attention):
        def merge(self, heads: Tensor) -> Tensor:
            return heads.reshape(heads.shape[0], heads.shape[2], -1)

    return build(attention=Faulty)


@fault
def batch_mixing() -> Decoder:
    """The values of each row hold a thousandth of the batch's mean."""

    class Faulty(Attention):
        def mix(self, weights: Tensor, values: Tensor) -> Tensor:
            return weights @ (values + 1e-3 * (values.mean(0, keepdim=True) - values))

    return build(attention=Faulty)


@fault
def attention_detached() -> Decoder:
    """The attention weights are cut from the graph: queries and keys get no gradient."""

    class Faulty(Attention):
        def mix(self, weights: Tensor, values: Tensor) -> Tensor:
            return weights.detach() @ values

    return build(attention=Faulty)


@fault
def no_final_norm() -> Decoder:
    """The head reads the residual stream without the final norm."""

    class Faulty(Decoder):
        def finish(self, x: Tensor) -> Tensor:
            return x

    return build(Faulty)


@fault
def residual_detached() -> Decoder:
    """The skip paths carry values and no gradient."""

    class Faulty(Layer):
        def skip(self, x: Tensor) -> Tensor:
            return x.detach()

    return build(layer=Faulty)


@fault
def rope_on_q_only() -> Decoder:
    """The queries are rotated, the keys are not."""

    class Faulty(Attention):
        def place(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            return self.rotate(q, positions), k

    return build(attention=Faulty)


@fault
def rope_pairing() -> Decoder:
    """Adjacent dimensions turn together, where the weights are for dimensions half a head apart."""

    class Faulty(Attention):
        def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
            cos, sin = turns(positions, x.dtype)
            even, odd = x[..., ::2], x[..., 1::2]
            return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)

    return build(attention=Faulty)


@fault
def gqa_interleaved() -> Decoder:
    """Query head h reads key/value head h mod KV_HEADS instead of its group's."""

    class Faulty(Attention):
        def expand(self, x: Tensor) -> Tensor:
            return x.repeat(1, HEADS // KV_HEADS, 1, 1)

    return build(attention=Faulty)


@fault
def scale_missing() -> Decoder:
    """The scores are not divided by the root of the head's width."""

    class Faulty(Attention):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-1, -2)

    return build(attention=Faulty)


@fault
def mask_minus_1e4() -> Decoder:
    """Hidden scores are lowered by 10000 instead of being set to minus infinity."""

    class Faulty(Attention):
        def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
            return (scores - 1e4 * ~visible).softmax(-1)

    return build(attention=Faulty)


@fault
def gate_and_up_swapped() -> Decoder:
    """The activation is on the up projection instead of on the gate."""

    class Faulty(FeedForward):
        def forward(self, x: Tensor) -> Tensor:
            return self.w_down(self.w_gate(x) * nnf.silu(self.w_up(x)))

    return build(feed_forward=Faulty)


@fault
def no_residual() -> Decoder:
    """The attention's output replaces the residual stream instead of being added to it."""

    class Faulty(Layer):
        def forward(self, x: Tensor, visible: Tensor, positions: Tensor) -> Tensor:
            x = self.attn(self.norm1(x), visible, positions)
            return x + self.ffn(self.norm2(x))

    return build(layer=Faulty)


@fault
def untied() -> Decoder:
    """The head is a copy of the embedding, where the definition says that they are one matrix."""
    model = correct_tied()
    model.out.weight = nn.Parameter(model.tok.weight.detach().clone())
    return model


@fault
def padding_ignored() -> Decoder:
    """Attention sees padding; the positions alone follow the attention mask."""

    class Faulty(Decoder):
        def visible(self, real: Tensor) -> Tensor:
            return super().visible(torch.ones_like(real))

    return build(Faulty)


@fault
def positions_ignore_the_mask() -> Decoder:
    """Positions count padding: 0 .. T-1 whatever the attention mask.

    Rotary scores depend on distances only, so padding on one side alone does not show it: a mask with a
    hole, 1 1 0 1, does.
    """

    class Faulty(Decoder):
        def positions(self, real: Tensor) -> Tensor:
            return torch.arange(real.shape[1], device=real.device).expand_as(real)

    return build(Faulty)
