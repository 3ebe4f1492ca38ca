"""Ranks: the card that each of them held, whatever its node offers now."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0018"
down_revision = "control_0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ranks", sa.Column("card", sa.Integer(), nullable=True))
    _fill_in()


def _fill_in() -> None:
    """Ranks of before get the card that their node offers now: nothing tells of another."""
    nodes = sa.table("nodes", sa.column("id"), sa.column("device"), sa.column("slots"), sa.column("inventory", types.JsonDocument))
    ranks = sa.table("ranks", sa.column("node_id"), sa.column("slot"), sa.column("card"))
    for node_id, slots, inventory in op.get_bind().execute(
        sa.select(nodes.c.id, nodes.c.slots, nodes.c.inventory).where(nodes.c.device == "cuda")
    ):
        cards = [int(card["index"]) for card in (inventory or {}).get("gpus", [])]
        for slot in range(max(slots, len(cards))):
            on_slot = (ranks.c.node_id == node_id) & (ranks.c.slot == slot)
            op.execute(sa.update(ranks).where(on_slot).values(card=cards[slot] if slot < len(cards) else slot))


def downgrade() -> None:
    op.drop_column("ranks", "card")
