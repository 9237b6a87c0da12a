"""Services of the site's own: what a declaration lets through is what roles take, and leads somewhere."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.logs.languages import QUERIES as LOG_QUERIES
from infra.capabilities.logs.languages import language
from infra.capabilities.monitoring.section import QUERIES as METRIC_QUERIES
from infra.declaration.remote import RemoteSpec
from infra.ground.endpoint import EVERYONE
from infra.ground.remote import URL, Queries, Remote, problems, query_url

ROLES = Path(__file__).resolve().parents[2] / "roles"
TAKEN = {
    role: re.findall(r"_url is match\('(\^.*)'\)", (ROLES / role / "tasks" / "preflight.yml").read_text())
    for role in ("log_shipper", "prometheus")
}
"""What the roles themselves say of a URL."""
ENDS = sorted({*LOG_QUERIES, *METRIC_QUERIES, ""})
URLS = st.one_of(
    st.from_regex(URL, fullmatch=True),
    st.builds(
        "{}://{}{}{}".format,
        st.sampled_from(["http", "https"]),
        st.sampled_from(["a", "a.b:1", "a:0", "a:99999", "::1", "me:x@a", ""]),
        st.sampled_from(ENDS),
        st.sampled_from(["", "?", "?a=b,c", "#x", "?%41", "\n"]),
    ),
    st.text(max_size=30),
)


def wrong(url: str, **others: str) -> list[str]:
    """Where something is wrong with one that is declared so."""
    spec = RemoteSpec.model_validate({"url": url, **others})
    return [problem.path for problem in problems("there", spec, LOG_QUERIES)]


@pytest.mark.parametrize("role", TAKEN)
@given(url=URLS)
def test_what_is_let_through_is_taken_by_the_role_and_leads_to_a_port(role: str, url: str) -> None:
    (pattern,) = TAKEN[role]
    if wrong(url):
        return
    assert re.match(pattern, url)
    assert not set(url) & set(" \t\n\"'\\\\%$`@{}")
    there = Remote(url=url).destination("it", EVERYONE)
    assert there.host
    assert 1 <= there.port <= 65_535


@given(user=st.sampled_from(["", "causeway"]), secret=st.sampled_from(["", "metrics"]), tls=st.booleans())
def test_a_password_goes_by_tls_and_with_a_name(user: str, secret: str, tls: bool) -> None:
    declared = {"username": user, "password_secret": secret}
    found = wrong(
        "https://a/x" if tls else "http://a/x", **{key: text for key, text in declared.items() if text}
    )
    assert ("there.url" in found) == (bool(secret) and not tls)
    assert ("there" in found) == (bool(user) != bool(secret))


@pytest.mark.parametrize(
    ("queries", "end"), [(one, end) for one in (LOG_QUERIES, METRIC_QUERIES) for end in one]
)
def test_where_something_is_taken_tells_where_it_is_asked(queries: Queries, end: str) -> None:
    asked = query_url(f"https://a:1/x{end}?b=c", "", queries)
    assert asked == f"https://a:1/x{queries[end]}"
    assert queries is METRIC_QUERIES or language(asked)
