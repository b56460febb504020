"""Types of the arrays that queries and trees exchange."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint64]
"""IDs of stacks, nodes or locations."""

Rows = npt.NDArray[np.int32]
"""Indexes into the columns of a tree."""

Values = npt.NDArray[np.int64]
"""Values in the unit of the profile type, or counts of samples."""

Depths = npt.NDArray[np.int32]
