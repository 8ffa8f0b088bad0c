"""Compares compiled and eager decoders; a program of its own, because TorchDynamo cannot trace shape checks.

Compiled as one graph, which is then run as it was traced, without a code generator.
"""

import torch

from model.random_decoder import BACKENDS, random_decoder, random_ids
from sizes import BATCH, LEARNED, MODERN, TIME
from tolerances import decoder_chain, largest, rounding


@torch.no_grad()
def main() -> None:
    padding = torch.ones(BATCH, TIME, dtype=torch.bool)
    padding[1, :4] = False
    documents = torch.arange(TIME).expand(BATCH, TIME) // 5
    windowed = MODERN.with_(sliding_window=3)
    for config, backend in zip((MODERN, LEARNED, windowed), (*BACKENDS, "fused"), strict=True):
        model, _ = random_decoder(config, backend=backend)
        token_ids = random_ids(config, BATCH, TIME)
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        for mask, ids in ((None, None), (padding, None), (padding, documents)):
            options = {"padding_mask": mask, "document_ids": ids}
            expected, expected_loss = model(token_ids, token_ids, **options)
            logits, loss = compiled(token_ids, token_ids, **options)
            bound = rounding(decoder_chain(config, TIME), largest(expected))
            assert (logits - expected).abs().max() <= bound
            assert abs(loss - expected_loss) <= bound


if __name__ == "__main__":
    main()
