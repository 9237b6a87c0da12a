"""Links between regions, as both of their ends know them."""


def tunnel_secret(link: str, region: str) -> str:
    """The name of the secret that is the key of a tunnel's end in a region."""
    return f"wireguard-{link}-{region}"
