"""What typed reads of many znodes return besides columns."""

from __future__ import annotations

from aiocontroller.core.ids import TopicAssignment
from aiocontroller.zookeeper.znode_json import BadZNode


class TopicAssignments:
    """What ``get_topic_assignments`` found."""

    __slots__ = ("bad", "found", "missing")

    def __init__(self) -> None:
        self.found: list[TopicAssignment] = []
        self.bad: list[BadZNode] = []
        self.missing: list[str] = []


class EntityConfigs(dict[str, dict[str, str]]):
    """Configuration by entity, {} if it has none; entities with damaged znodes are only in ``bad``."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[BadZNode] = []
        self.changed_zxid: dict[str, int] = {}
        """The zxid of each readable configuration's last change; 0 without a znode."""
