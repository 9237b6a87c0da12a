"""The software of GPUs: what fits together, and what each pool is to have."""
