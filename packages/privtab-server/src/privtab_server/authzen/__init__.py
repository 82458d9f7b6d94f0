"""The OpenID AuthZEN Authorization API 1.0 over HTTP, for any engine; run by `privtab serve`.

`messages` reads bodies, `service` answers them, `app` serves both over HTTP. Sections (§) refer to the specification.
"""
