"""What the property tests share: few examples, always the same ones, and nothing written to disk."""

from hypothesis import settings
from hypothesis import strategies as st

few = settings(max_examples=25, derandomize=True, deadline=None, database=None)

seeds = st.integers(0, 2**31 - 1)
head_counts = st.sampled_from([(6, 6), (6, 3), (6, 2), (6, 1), (4, 2), (1, 1)])
"""Query heads and KV heads: MHA, GQA with groups of 2 and 3, MQA, and a single head."""
