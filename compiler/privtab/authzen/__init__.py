"""The OpenID AuthZEN Authorization API 1.0 over HTTP, answered by any engine: what `privtab serve` runs.

`messages` reads bodies, `service` answers them, `app` puts both on the wire. Sections (§) are those of the specification.
"""
