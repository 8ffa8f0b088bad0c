"""The ``gguf`` library's reader, made to stop where a file does."""

from typing import Any

import numpy as np
from gguf import GGUFReader


class BoundedReader(GGUFReader):  # type: ignore[misc]
    """A reader that raises at the end of the file, where the library's goes on with empty arrays, for ever.

    Raises:
        ValueError: the file ends before what its header announces; the library raises OSError, IndexError,
            KeyError, OverflowError and TypeError for other damage.
    """

    data: Any

    def _get(self, offset: int, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        if isinstance(self.data, np.memmap):
            self.data = self.data.view(np.ndarray)  # still mapped, but slices cost a third
        end = offset + int(count) * np.dtype(dtype).itemsize
        if end > len(self.data):
            raise ValueError(f"the file ends before byte {end}")
        return super()._get(offset, dtype, count, override_order)
