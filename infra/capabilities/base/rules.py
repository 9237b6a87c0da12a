"""Who may log in to the nodes, the language that they speak, and where they get packages."""

import re
from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from infra.declaration import ClusterSpec, MirrorsSpec
from infra.declaration.base import is_line
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.remote import secret_name, url_problems
from infra.ground.rules.machines import KEY_TYPES, holds_type

USER_KEY_TYPES = (*KEY_TYPES, "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")
"""Keys of users may live in a security key as well."""
NO_USER = "let the mirror know its region's nodes by their addresses"
COMPONENT = re.compile(r"[a-z0-9][a-z0-9./-]*")


class AuthorizedKeysAreKeys:
    """A line that sshd passes over lets nobody in, and options before a key could shut the stack out."""

    id: ClassVar[str] = "authorized-keys"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Authorised keys that are not a line `type base64 [comment]`, and those that stand twice."""
        first: dict[str, str] = {}
        for number, line in enumerate(spec.authorized_keys):
            path = f"authorized_keys[{number}]"
            if found := _complaint(line):
                yield Problem(path, found[0], allowed="<type> <base64> [comment]", hint=found[1])
                continue
            earlier = first.setdefault(line.split()[1], path)
            if earlier != path:
                yield Problem(path, f"the same key as {earlier}", hint="take one of them out")


class LocaleIsKnown:
    """`jp_JP.UTF-8` has the right form, and no machine can generate it."""

    id: ClassVar[str] = "locale-known"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Locales whose language and country Python's alias table has not heard of."""
        known = _locales()
        for index, region in enumerate(spec.regions):
            name = region.locale.split(".")[0]
            if name not in (*known, "C", "POSIX"):
                same_country = [other for other in known if other[-3:] == name[-3:]]
                near = nearest(name, same_country or known)
                suggestion = f"{near}.UTF-8" if near else None
                message = f"{show(region.locale)} is not a locale known here"
                yield Problem(f"regions[{index}].locale", message, show(region.locale), suggestion=suggestion)


@cache
def _locales() -> list[str]:
    """Every language and country that Python knows a locale of, sorted."""
    import locale

    return sorted({name.split(".")[0] for name in locale.locale_alias.values() if "_" in name[:4]})


class SudoAsksSomebody:
    """root is asked for nothing, and a secret without a question is a mistake."""

    id: ClassVar[str] = "sudo"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Passwords of root's, those that nobody asks for, and secrets whose names are none."""
        for index, region in enumerate(spec.regions):
            path, provider = f"regions[{index}].provider", region.provider
            secret = provider.sudo_password_secret
            if provider.sudo == "password" and provider.ssh_user == "root":
                hint = "declare the `ssh_user` that sudo asks, or take it out"
                yield Problem(f"{path}.sudo", "root needs no sudo", hint=hint)
            if secret is None:
                continue
            if provider.sudo != "password":
                hint = "declare `sudo: password` beside it, or take it out"
                yield Problem(f"{path}.sudo_password_secret", "sudo is to ask for no password", hint=hint)
            yield from secret_name(f"{path}.sudo_password_secret", secret)


class MirrorsCanBeAsked:
    """apt asks a mirror long before anybody reads what it says of a URL."""

    id: ClassVar[str] = "mirrors"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """URLs that are none, mirrors without anything, and parts of an archive that is not declared."""
        for index, region in enumerate(spec.regions):
            if region.mirrors is not None:
                yield from _mirrors(f"regions[{index}].mirrors", region.mirrors)


def _mirrors(path: str, mirrors: MirrorsSpec) -> Iterator[Problem]:
    urls = mirrors.urls()
    if not urls:
        hint = "declare packages, artefacts or proxy, or take it out"
        yield Problem(path, "names no mirror and no proxy", hint=hint)
    for use, url in urls.items():
        wrong = list(url_problems(f"{path}.{use}", url, NO_USER))
        yield from wrong
        if not wrong and "?" in url:
            message = f"{show(url)} asks a question, and what is asked for stands behind it"
            yield Problem(f"{path}.{use}", message, show(url))
    if mirrors.proxy and not re.fullmatch(r"http://[^/]*/?", mirrors.proxy):
        # apt asks any proxy by HTTP, also for HTTPS.
        message = "is not a proxy of the form http://HOST:PORT"
        yield Problem(f"{path}.proxy", message, hint="apt speaks plain HTTP with it, also for https mirrors")
    for field in ("security", "components"):
        if getattr(mirrors, field) and mirrors.packages is None:
            message = "says more of a mirror of packages, and there is none"
            yield Problem(f"{path}.{field}", message, hint="declare packages beside it, or take it out")
    for number, one in enumerate(mirrors.components):
        if not COMPONENT.fullmatch(one):
            message = f"{show(one)} is not a component of an archive, such as main"
            yield Problem(f"{path}.components[{number}]", message, show(one))
    if mirrors.ca_file and not any(url.startswith("https://") for url in urls.values()):
        yield Problem(f"{path}.ca_file", "is read for https only", hint="declare https, or take it out")


def _complaint(line: str) -> tuple[str, str] | None:
    """(what is wrong, what to do); the value itself is not repeated, it may be a private key."""
    words = line.split()
    if "PRIVATE KEY" in line:
        return "a private key", "replace that key, it has been shown; the line of its .pub file is meant"
    if len(line.splitlines()) > 1:
        return "several lines", "make each key an item of the list"
    if not is_line(line):
        return "a character that cannot be seen", "copy the line of the .pub file again"
    if not words or words[0] not in USER_KEY_TYPES:
        kinds = ", ".join(USER_KEY_TYPES)
        return f"not a public key; it starts with {kinds}", "take the line of the .pub file, without options"
    if len(words) < 2 or not holds_type(words[1], words[0]):
        return (
            f"the part after {words[0]} is not such a key (cut off?)",
            "take the whole line of the .pub file",
        )
    return None
