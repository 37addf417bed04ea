"""What is asked, API by API: each request names every kind of topic, group or id at once, as far as it can.

A request that changes something names what no other request uses (``Cell.fresh``), or validates only.
"""

from __future__ import annotations

from tests.authorization.administration import ADMINISTRATION
from tests.authorization.asking import Ask
from tests.authorization.between_brokers import BETWEEN_BROKERS
from tests.authorization.clients import CLIENTS

ASKS: tuple[Ask, ...] = (*CLIENTS, *ADMINISTRATION, *BETWEEN_BROKERS)
