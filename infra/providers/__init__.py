"""Where nodes come from, and what Pulumi may ask of them."""
