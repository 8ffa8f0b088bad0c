"""From a live foreign module to a decoder's config and weights, so that the oracle can judge it.

``find_map(module)`` knows the layouts of some well-known projects; ``read_map(path, module)`` reads a map that
somebody wrote.
"""

from proof_lm.verify.maps.find import find_map
from proof_lm.verify.maps.map_file import read_map
from proof_lm.verify.maps.weight_map import Place, WeightMap

__all__ = ["Place", "WeightMap", "find_map", "read_map"]
