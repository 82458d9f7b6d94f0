"""Another client of OPA asks the same packages and gets the same answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from opa_client.opa import OpaClient

from privtab import Client
from privtab.base.request import Decision
from privtab.engines.opa.server import OpaServer


def test_opa_python_client_gets_the_same_answers(opa: OpaServer, client: Client, decision_bundle: Any) -> None:
    address = urlsplit(opa.url)
    requests = [request for request, _ in decision_bundle.cases]
    package = f"privtab.{decision_bundle.system}"
    with OpaClient(host=address.hostname, port=address.port) as other:
        for request, expected in decision_bundle.cases:
            answer = other.query_rule(input_data=request.to_json(), package_path=package, rule_name="allow")
            assert answer["result"] is expected is client.check(request), request
            explained = other.query_rule(input_data=request.to_json(), package_path=package, rule_name="decision")
            assert Decision.from_engine(explained["result"], request) == client.decide(request)
        many = other.query_rule(
            input_data={"requests": [request.to_json() for request in requests]},
            package_path=package,
            rule_name="decisions",
        )
        assert many["result"] == client.check_many(requests)
