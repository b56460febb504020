"""Questions to a filled store: how long they take, and how many bytes a sample takes."""
