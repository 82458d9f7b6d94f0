"""Shell completion: names of policies, and channels of a registry in a folder."""

from __future__ import annotations

from pathlib import Path

import typer

from privtab.errors import PrivtabError


def policies(incomplete: str) -> list[str]:
    """The names of policies with this prefix; none for a path, which the shell completes itself."""
    from privtab.pipeline import policy_names

    try:
        return [name for name in policy_names() if name.startswith(incomplete)]
    except (PrivtabError, OSError):
        return []  # an invalid settings file is reported by the command, not during completion


def channels(context: typer.Context, incomplete: str) -> list[str]:
    """The channels with this prefix in the registry of the command line or the environment, if it is a folder."""
    from privtab.registry.names import CHANNELS

    registry = next((context.params[name] for name in ("registry", "url") if context.params.get(name)), None)
    try:
        folders = (Path(str(registry)) / CHANNELS).iterdir() if registry and "://" not in str(registry) else ()
        return sorted(folder.name for folder in folders if folder.is_dir() and folder.name.startswith(incomplete))
    except OSError:
        return []
