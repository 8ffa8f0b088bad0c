"""One module a layout: what a project's decoder computes, and where its weights lie."""

from proof_lm.verify.maps.layouts.cs336 import CS336
from proof_lm.verify.maps.layouts.hugging_face import HUGGING_FACE
from proof_lm.verify.maps.layouts.layout import Layout
from proof_lm.verify.maps.layouts.litgpt import LITGPT
from proof_lm.verify.maps.layouts.llms_from_scratch import LLMS_FROM_SCRATCH
from proof_lm.verify.maps.layouts.nanogpt import NANOGPT
from proof_lm.verify.maps.layouts.native import PROOF_LM

LAYOUTS: tuple[Layout, ...] = (PROOF_LM, *HUGGING_FACE, NANOGPT, *LITGPT, CS336, LLMS_FROM_SCRATCH)

__all__ = ["LAYOUTS", "Layout"]
