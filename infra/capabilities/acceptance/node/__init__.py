"""What runs on a node: looks, compares with what is declared, and says what is to be done.

Python 3.8, standard library: `python3 -m infra.capabilities.acceptance.node`.
"""
