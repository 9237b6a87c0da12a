"""Services of the site's own that a cluster sends to: what roles are told of one, what is wrong with one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from infra.declaration.hosts import LAST_PORT, is_host, is_port
from infra.declaration.remote import RemoteSpec
from infra.files import given_path
from infra.ground.contract import Part
from infra.ground.endpoint import Destination, HostSet
from infra.ground.problem import Problem, show
from infra.ground.rules.names import LABEL
from infra.ground.secrets import GIVEN
from infra.stack import secret_file

CLUSTER = "cluster"
"""The declaration itself, beside which secrets stand in the stack's file."""
URL = re.compile(
    r"https?://(?P<host>[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:(?P<port>[0-9]{1,5}))?"
    r"(/[A-Za-z0-9._~/+-]*(\?[A-Za-z0-9._~/+=&,-]*)?)?"
)
"""What stands in units and configurations as it is: no quotes, %, $ or \\, which several programs read."""
Queries = Mapping[str, str]
"""How the path ends at which something is taken → how that ends at which the same server is asked for it."""
PORTS = {"http": 80, "https": 443}


class Remote(Part):
    """One of them, as declared; the password by its secret's name."""

    url: str
    query_url: str | None = None
    username: str | None = None
    password_secret: str | None = None
    ca_file: str | None = None

    @classmethod
    def of(cls, spec: RemoteSpec) -> "Remote":
        """What is declared of it."""
        return cls.model_validate({name: getattr(spec, name) for name in cls.model_fields})

    @property
    def given_secret(self) -> str:
        """Under which name the stack has its password; empty where there is none."""
        return GIVEN + self.password_secret if self.password_secret else ""

    def destination(self, name: str, sources: HostSet) -> Destination:
        """Where it is, for whoever opens ports."""
        return destination(name, self.url, sources)


def destination(name: str, url: str, sources: HostSet) -> Destination:
    """Where a URL leads, for whoever opens ports."""
    found = urlsplit(url)
    return Destination(name, sources, str(found.hostname), found.port or PORTS[found.scheme])


def remote_variables(prefix: str, remote: Remote, stack: str) -> dict[str, Any]:
    """What a role whose variables begin with `prefix` is told of it; files are the controller's."""
    found = {
        "url": remote.url,
        "query_url": remote.query_url,
        "username": remote.username,
        "password_file": str(secret_file(stack, remote.given_secret)) if remote.given_secret else None,
        "ca_file": given_path(remote.ca_file),
    }
    return {f"{prefix}_{name}": value or "" for name, value in found.items()}


def query_url(url: str, declared: str, queries: Queries) -> str:
    """Where one that takes things at `url` is asked for them: as declared, as its path tells, or empty."""
    taken = url.partition("?")[0]
    told = (taken.removesuffix(end) + query for end, query in queries.items() if taken.endswith(end))
    return declared or next(told, "")


def problems(path: str, spec: RemoteSpec, queries: Queries) -> Iterator[Problem]:
    """What is wrong with one that is declared at `path`: URLs, and by which name and password it is asked."""
    if spec.query_url and not spec.query_url.partition("?")[0].endswith(tuple(queries.values())):
        ends = " or ".join(dict.fromkeys(queries.values()))
        message = "is not where it is asked in a language that is known here"
        yield Problem(f"{path}.query_url", message, hint=f"its path ends with {ends}")
    for field in ("url", "query_url"):
        if (url := getattr(spec, field)) is not None:
            yield from url_problems(f"{path}.{field}", url)
            if spec.password_secret and url.startswith("http://"):
                message = "sends the password readable to whoever listens on the way"
                yield Problem(f"{path}.{field}", message, hint="declare https, or no user and no password")
    if spec.password_secret is not None:
        yield from secret_name(f"{path}.password_secret", spec.password_secret)
    named = spec.username, spec.password_secret
    if any(named) and not all(named):
        missing = "password_secret" if named[0] else "username"
        yield Problem(path, f"has no {missing}", hint="basic authentication asks for both, or for none")
    if spec.ca_file and spec.url.startswith("http://"):
        yield Problem(f"{path}.ca_file", "is read for https only", hint="declare https, or take it out")


def url_problems(
    path: str, url: str, hint: str = "declare username and password_secret beside it"
) -> Iterator[Problem]:
    """What is wrong with a URL that is declared at `path`; `hint` is for one with a user's name in it."""
    if "@" in url:
        # It is not repeated: it may have the password.
        message = "holds a user's name, and a declaration holds no secret"
        yield Problem(path, message, hint=hint)
    elif not ((found := URL.fullmatch(url)) and is_host(found["host"])):
        message = f"{show(url)} is not a URL: http or https, a host's name or IPv4 address, a path"
        yield Problem(path, message, show(url))
    elif (port := found["port"]) and not is_port(port):
        yield Problem(path, f"{port} is not a port (1 to {LAST_PORT})", show(url))


def secret_name(path: str, secret: str) -> Iterator[Problem]:
    """What is wrong with the name of a secret that a declaration refers to."""
    hint = "give it a name, and set that by `./run exec causeway secret NAME`"
    if "://" in secret:
        message = "is a URL, and a declaration holds no secret"
        yield Problem(path, message, hint=hint)
    elif not LABEL.fullmatch(secret) or secret == CLUSTER:
        # It is not repeated: it may be the secret.
        message = "cannot be a secret's name (a-z, 0-9 and - inside; cluster is the declaration's)"
        yield Problem(path, message, hint=hint)
