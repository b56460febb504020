"""What a request costs, compared between two sides: operations, the functions that a change went to, and a sentence."""
