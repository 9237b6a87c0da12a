"""A look at machines that somebody has, before anything is changed: what fits, and what is in the way."""
