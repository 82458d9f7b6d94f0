"""The metadata document (§9): the endpoints that the PDP supports."""

from __future__ import annotations

WELL_KNOWN = "/.well-known/authzen-configuration"
EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCH = "/access/v1/search"


def metadata(base: str, *, searches: bool) -> dict[str, str]:
    """The document of the PDP at an address; without `searches` it can only search for actions."""
    found = {
        "policy_decision_point": base,
        "access_evaluation_endpoint": base + EVALUATION,
        "access_evaluations_endpoint": base + EVALUATIONS,
    }
    for kind in ("subject", "resource", "action"):
        if searches or kind == "action":
            found[f"search_{kind}_endpoint"] = f"{base}{SEARCH}/{kind}"
    return found
