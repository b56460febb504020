"""Files and folders: locks, atomic writes, caches on disk, free space."""
