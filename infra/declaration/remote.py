"""A service of the site's own that takes what a cluster has: where it is, and by which name it is asked."""

from infra.declaration.base import FilePath, Spec, UserName


class RemoteSpec(Spec):
    """Something outside of the cluster that takes what is sent to it by HTTP."""

    url: str
    """Where it takes that, with the path: `https://…`; `http://` sends all readable, and no password."""
    query_url: str | None = None
    """Where it can be asked for what it took, by the same user; unset means as `url` tells, or nowhere."""
    username: UserName | None = None
    """By which name it is asked (HTTP basic authentication); unset means by none."""
    password_secret: str | None = None
    """Name of the secret that is the password, set by `causeway secret NAME`."""
    ca_file: FilePath | None = None
    """File on this machine with the authority that signs its certificate; unset: a public one."""
