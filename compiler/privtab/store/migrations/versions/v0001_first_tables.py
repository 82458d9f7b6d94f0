"""The first tables. Later versions change them by further migrations, never here."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_STATE = {
    "members": (("user", "of"), ()),
    "memberships": (("user", "group"), ("from", "until")),
    "assignments": (("principal", "role"), ("scope", "from", "until")),
    "grants": (("grantee", "effect", "privilege", "entity"), ("from", "until")),
    "owners": (("entity", "owner"), ("from", "until")),
    "service_admins": (("user",), ()),
    "attributes": (("attribute", "value"), ("user", "entity")),
    "entities": (("entity", "parent"), ("name",)),
}
"""The required and the optional cells of each table."""
_INDEXES = {
    "members": (("user",), ("of",)),
    "memberships": (("user",), ("group",)),
    "assignments": (("principal",), ("role",), ("scope",)),
    "grants": (("entity", "grantee"), ("grantee",)),
    "owners": (("entity",), ("owner",)),
    "service_admins": (("user",),),
    "attributes": (("user",), ("entity",)),
    "entities": (("entity",), ("parent",)),
}
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "journal",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("request_id", sa.String(200), unique=True),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource", sa.Text),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("checked", sa.String(64)),
    )
    for name, (required, optional) in _STATE.items():
        op.create_table(
            f"state_{name}",
            sa.Column("id", sa.String(64), primary_key=True),
            *(sa.Column(cell, _TEXT, nullable=False) for cell in required),
            *(sa.Column(cell, _TEXT) for cell in optional),
            sa.Column("change", sa.BigInteger, nullable=False),
        )
        for columns in _INDEXES[name]:
            cells = (sa.text(f'substr("{cell}", 1, 300)') for cell in columns)
            op.create_index(f"of_{name}_{'_'.join(columns)}", f"state_{name}", list(cells))
