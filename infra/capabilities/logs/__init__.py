"""The nodes' journals, kept by region."""
