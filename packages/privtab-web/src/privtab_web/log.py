"""Log decisions in the service's log: one record for each call, with fields for structured handlers."""

from __future__ import annotations

import logging

from privtab.client import Hook, Outcome, Question

__all__ = ["DecisionLog"]


class DecisionLog(Hook):
    """Logs every call: `Client(url, hooks=[DecisionLog()])`. A record's `privtab` has the fields of the decision.

    Denials have the level `denied`, calls without a decision ERROR. `identities=False` omits users and resources.
    """

    def __init__(
        self,
        logger: str = "privtab.decisions",
        *,
        level: int = logging.INFO,
        denied: int = logging.INFO,
        identities: bool = True,
    ) -> None:
        self._logger = logging.getLogger(logger)
        self._level = level
        self._denied = denied
        self._identities = identities

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        """Write the record."""
        del begun
        parts = outcome.fields(question, identities=self._identities)
        level = {"error": logging.ERROR, "allow": self._level}.get(str(parts["outcome"]), self._denied)
        if not self._logger.isEnabledFor(level):
            return
        if self._identities:
            text = outcome.line(question)
        else:
            text = " ".join(f"{name}={value}" for name, value in parts.items())
        self._logger.log(level, "%s", text, extra={"privtab": parts})
