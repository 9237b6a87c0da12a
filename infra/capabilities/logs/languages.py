"""Where a store of the site's own is asked for lines, and in which language."""

from typing import Literal

from infra.ground.remote import Queries

Language = Literal["logql", "logsql"]
LANGUAGES: dict[str, Language] = {"/loki/api/v1/query_range": "logql", "/select/logsql/query": "logsql"}
"""How a query's path ends → what is understood there: Loki's HTTP API, VictoriaLogs' querying API."""
QUERIES: Queries = {
    "/insert/loki/api/v1/push": "/select/logsql/query",
    "/insert/jsonline": "/select/logsql/query",
    "/loki/api/v1/push": "/loki/api/v1/query_range",
}
"""Where lines are taken → where the same server is asked; VictoriaLogs' own path of Loki's protocol first."""


def language(asked: str) -> Language | None:
    """What a query's URL understands; None where its path says nothing."""
    path = asked.partition("?")[0]
    return next((one for end, one in LANGUAGES.items() if path.endswith(end)), None)
