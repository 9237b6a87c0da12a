"""The one base of all declarations, and the value types they share."""

import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from infra.declaration import hosts, timezones

REFUSAL = "causeway"
"""The pydantic error type of our own refusals; `infra.checks` reads message and suggestion from them."""

LOCALE = re.compile(r"(C|POSIX|[a-z]{2,3}_[A-Z]{2})\.UTF-8(@[a-z]+)?")
TIMEZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,63}")
MAILBOX = re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,253}")
ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
REPOSITORY = re.compile(r"https?://(?P<authority>[A-Za-z0-9.\[\]:-]+)(/[A-Za-z0-9._~/+-]*)?")
NOT_IN_PATHS = frozenset("\"'\\%$")
"""What ssh reads as a quote, or as the place of something else."""
LONGEST_PATH, LONGEST_NAME = 1024, 255
"""What file systems take of a name, in bytes, and half a dozen of folders above it."""


def refusal(message: str, suggestion: str | None = None, allowed: str = "") -> PydanticCustomError:
    """An error about one value. `message` goes on after the value: `is not …`."""
    context = {"message": message, "suggestion": suggestion, "allowed": allowed}
    return PydanticCustomError(REFUSAL, "{message}", context)


class Spec(BaseModel):
    """A declared value: immutable, and a key nobody knows is an error rather than a silent typo.

    Rules that need one field live on the field; rules that need several objects live in
    `infra.checks`, so that all of them can be reported at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    what: ClassVar[str] = ""
    """What errors call it: "a region"."""


def _number(value: object) -> object:
    """Refuse `count: true`, which pydantic would take for 1."""
    if isinstance(value, bool):
        raise refusal("is a truth value, not a number")
    return value


def _truth(value: object) -> object:
    """Refuse `yes` and `on`, which are texts in YAML 1.2, and numbers; a program may write `true` as text."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if isinstance(value, str) and word in ("true", "false"):
        return word == "true"
    meant = "true" if word in ("yes", "on", "y", "t", "1") else None
    meant = "false" if word in ("no", "off", "n", "f", "0") else meant
    raise refusal("is not true or false", meant, "true or false")


def _cidr(value: object) -> object:
    if isinstance(value, IPv4Network):
        return value
    wanted = "is not an IPv4 network such as 10.81.0.0/16"
    if not isinstance(value, str):
        raise refusal(wanted)
    if "/" not in value:
        raise refusal("has no prefix length", _with_prefix(value))
    try:
        return IPv4Network(value)
    except ValueError:
        pass
    try:
        suggestion = str(IPv4Network(value, strict=False))
    except ValueError:
        raise refusal("is an IPv6 network; a region's range is IPv4" if ":" in value else wanted) from None
    raise refusal("is an address inside a network: bits after the prefix are set", suggestion)


def _with_prefix(address: str) -> str | None:
    """The network whose address ends where the trailing zero bytes begin: 10.81.0.0 → 10.81.0.0/16."""
    try:
        packed = IPv4Address(address).packed
    except ValueError:
        return None
    prefix = 8 * max(len(packed.rstrip(b"\0")), 1)
    return f"{address}/{min(prefix, 24)}" if prefix < 32 else None


def _address(value: object) -> object:
    if isinstance(value, IPv4Address):
        return value
    if isinstance(value, str):
        try:
            return IPv4Address(value)
        except ValueError:
            pass
    raise refusal("is not an IPv4 address such as 10.81.0.5")


def _interface(value: object) -> object:
    if isinstance(value, IPv4Interface):
        return value
    if isinstance(value, str) and "/" in value:
        try:
            return IPv4Interface(value)
        except ValueError:
            pass
    raise refusal("is not an IPv4 address with its prefix length, such as 192.0.2.1/30")


def is_line(text: str) -> bool:
    """Whether a text is one line that shows as it is: nothing in it ends a line, or is invisible."""
    return text.isprintable()


def _path(value: str) -> str:
    if not value:
        raise refusal("is empty")
    if not is_line(value) or NOT_IN_PATHS & set(value):
        raise refusal("is not a path that ssh reads as it is: no quotes, no \\, %, $ or line breaks")
    names = value.encode().split(b"/")
    if len(value.encode()) > LONGEST_PATH or max(map(len, names)) > LONGEST_NAME:
        raise refusal(f"is longer than a path ({LONGEST_PATH} bytes, {LONGEST_NAME} between two /)")
    try:
        Path(value).expanduser()
    except RuntimeError:
        raise refusal("begins with a home that this machine does not know; write the whole path") from None
    return value


def _user(value: str) -> str:
    if not USER.fullmatch(value):
        raise refusal("is not a user's name (letters, digits, and _ . @ - after the first)")
    return value


def _model(value: str) -> str:
    if not MODEL.fullmatch(value):
        raise refusal("is not a model's name (letters, digits, spaces, and . _ ( ) / + - after the first)")
    return value


def _mailbox(value: str) -> str:
    if not (MAILBOX.fullmatch(value) and hosts.is_host(value.partition("@")[2])):
        raise refusal("is not an address of the form ops@example.org")
    return value


def _jump_address(value: str) -> str:
    if not (ADDRESS.fullmatch(value) and hosts.is_host(value)):
        raise refusal("is not an address or a name such as bastion.example.org")
    return value


def _server(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not (hosts.is_host(host) and hosts.is_port(port)):
        raise refusal("is not a server with its port, such as mail.example.org:587")
    return value


def _repository(value: str) -> str:
    if not ((found := REPOSITORY.fullmatch(value)) and hosts.is_authority(found["authority"])):
        raise refusal("is not the address of a repository: http or https, a host, and a path")
    return value


def _timezone(value: str) -> str:
    known = timezones.names()
    # A machine without tzdata cannot tell, and must not refuse what the nodes know.
    if value in known or (not known and TIMEZONE.fullmatch(value)):
        return value
    if timezones.is_known(value):
        raise refusal("is an old name, and nodes have the new ones only", timezones.today(value))
    folded = {name.casefold(): name for name in known}
    wanted = value.strip().replace(" ", "_").casefold()
    suggestion = folded.get(wanted) or next(
        (folded[name] for name in sorted(folded) if name.endswith("/" + wanted)), None
    )
    raise refusal("is not a time zone of the tz database", suggestion or _nearest(value, known))


def _nearest(value: str, known: frozenset[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(value, sorted(known), n=1, cutoff=0.7)), None)


def _locale(value: str) -> str:
    if LOCALE.fullmatch(value):
        return value
    parts = re.fullmatch(r"([A-Za-z]{2,3})[-_]([A-Za-z]{2})(?:\.[A-Za-z0-9-]+)?", value)
    suggestion = f"{parts[1].lower()}_{parts[2].upper()}.UTF-8" if parts else None
    raise refusal("is not a locale of the form ll_CC.UTF-8, such as ja_JP.UTF-8 or C.UTF-8", suggestion)


Int = Annotated[int, BeforeValidator(_number)]
Float = Annotated[float, BeforeValidator(_number)]
Bool = Annotated[bool, BeforeValidator(_truth)]
Cidr = Annotated[IPv4Network, BeforeValidator(_cidr)]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
Interface = Annotated[IPv4Interface, BeforeValidator(_interface)]
Timezone = Annotated[str, AfterValidator(_timezone)]
Locale = Annotated[str, AfterValidator(_locale)]
# What else is text ends up in files of nodes and of the controller, where a line break, a quote or a dash in
# front would say more than the text does. Names are for the rules, which know what they name.
FilePath = Annotated[str, AfterValidator(_path)]
UserName = Annotated[str, AfterValidator(_user)]
ModelName = Annotated[str, AfterValidator(_model)]
Mailbox = Annotated[str, AfterValidator(_mailbox)]
JumpAddress = Annotated[
    str, AfterValidator(_jump_address), Field(json_schema_extra={"pattern": f"^{ADDRESS.pattern}$"})
]
Server = Annotated[str, AfterValidator(_server)]
Repository = Annotated[str, AfterValidator(_repository)]
KeyLine = Annotated[str, StringConstraints(strip_whitespace=True)]
"""A public key; what is wrong with one is a rule's to say, without repeating what may be a private key."""
