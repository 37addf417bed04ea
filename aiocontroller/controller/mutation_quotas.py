"""Controller mutation quotas (KIP-599): reads them from ZooKeeper, and keeps each client's token bucket.

The counterpart of Kafka's ``ControllerMutationQuotaManager``.  The first request of a term to create or delete topics
reads all quotas; after that, only those named by change notifications are read.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import anyio

from aiocontroller.config import Config
from aiocontroller.core.mutation_quotas import UNBOUNDED, MutationQuota, PermissiveQuota, StrictQuota, TokenBucket
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Clock
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client_quotas import quota_values
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.topic_rules import TopicError

log = logging.getLogger(__name__)

RATE = "controller_mutation_rate"
IDLE_S = 3600.0
"""A bucket unused for this long is dropped, like Kafka's sensors."""
MAX_BUCKETS = 10_000
"""With more clients than this, the bucket that was unused for longest is dropped."""
MAX_NAME_CHARACTERS = 1 << 20
"""Total size of the clients' names: a client id may have 32 KiB, and each has its own gauge."""
_DEFAULT = paths.DEFAULT_ENTITY

Tags = tuple[str, str]
"""(user, client id), sanitized: the key of a bucket; '' for all users, or all client ids."""


class MutationQuotas:
    """``quota_for`` may be called from any task; ``changed`` and ``forget`` only by the consumer."""

    def __init__(self, zk: KafkaZkClient, clock: Clock, policy: Callable[[], Config], metrics: Metrics) -> None:
        self._zk = zk
        self._now_s = clock.monotonic
        self._policy = policy
        self._metrics = metrics
        self._turn = anyio.Lock()
        self._buckets: OrderedDict[Tags, tuple[TokenBucket, float]] = OrderedDict()
        """Each bucket with the time of its last use, least recently used first."""
        self._name_characters = 0
        self.forget()
        self._throttled = metrics.meter("kafka.server", "ControllerMutation", "ThrottledRequestsPerSec")

    def forget(self) -> None:
        """Drop the quotas, which may differ in another term, but keep the buckets: a new term must not refill them."""
        self._limits: dict[Tags, float] = {}
        """Tokens per second by entity; names are sanitized, ``paths.DEFAULT_ENTITY``, or '' for a missing part."""
        self._known = self._loading = False
        self._stale: dict[str, None] = {}
        """Entities that have changed, such as ``users/alice/clients/c``."""

    def changed(self, entity: str) -> None:
        """A notification names ``entity``; its new quota is read at the next ``quota_for``."""
        if (self._known or self._loading) and entity.partition("/")[0] in ("users", "clients"):
            self._stale[entity] = None

    async def quota_for(self, principal: str, client_id: str | None, *, strict: bool) -> MutationQuota:
        """The quota for a request of this principal (``User:alice``); passes on ZooKeeper's errors."""
        if not self._known or self._stale:
            await self._read()
        user, client = paths.sanitize(principal.partition(":")[2]), paths.sanitize(client_id or "")
        found = self._limit(user, client)
        if found is None:
            return UNBOUNDED
        bucket = self._bucket(*found)
        return (StrictQuota if strict else PermissiveQuota)(bucket, self._now_s)

    def throttled(self) -> None:
        """A request was answered with a throttle time."""
        self._throttled.mark()

    # -- limits ----------------------------------------------------------------------------------------------------

    def _limit(self, user: str, client: str) -> tuple[Tags, float] | None:
        """The most specific limit, in Kafka's order of precedence, and the key of the bucket that shares it."""
        for entity, tags in (
            ((user, client), (user, client)),
            ((user, _DEFAULT), (user, client)),
            ((user, ""), (user, "")),
            ((_DEFAULT, client), (user, client)),
            ((_DEFAULT, _DEFAULT), (user, client)),
            ((_DEFAULT, ""), (user, "")),
            (("", client), ("", client)),
            (("", _DEFAULT), ("", client)),
        ):
            limit = self._limits.get(entity)
            if limit is not None:
                return tags, limit
        return None

    async def _read(self) -> None:
        """Read quotas; concurrent callers share one read, and quotas that change meanwhile are read again."""
        async with self._turn:
            admin = AdminZkClient(self._zk)
            while not self._known:
                await self._load(admin)
            while self._stale:
                entity = next(iter(self._stale))
                del self._stale[entity]
                entity_type, _, name = entity.partition("/")
                try:
                    self._set(entity, await admin.get_entity_configs(entity_type, name))
                except TopicError as error:
                    log.warning("Keeping the previous quotas of %s: %s", entity, error)
                except BaseException:
                    self._stale[entity] = None
                    raise

    async def _load(self, admin: AdminZkClient) -> None:
        """Read all quotas; the result is dropped if another term starts meanwhile."""
        self._loading = True
        limits = self._limits
        found = {f"users/{name}": c for name, c in (await admin.get_all_entity_configs("users")).items()}
        found |= {f"users/{name}": c for name, c in (await admin.get_all_user_client_configs()).items()}
        found |= {f"clients/{name}": c for name, c in (await admin.get_all_entity_configs("clients")).items()}
        if limits is self._limits:
            for entity, configs in found.items():
                self._set(entity, configs)
            self._known, self._loading = True, False

    def _set(self, entity: str, configs: dict[str, str]) -> None:
        entity_type, _, name = entity.partition("/")
        if entity_type == "clients":
            key = ("", name)
        else:
            user, _, client = name.partition("/clients/")
            key = (user, client)
        limit = quota_values(entity_type, configs).get(RATE)
        if limit is None:
            self._limits.pop(key, None)
        else:
            self._limits[key] = limit

    # -- buckets ---------------------------------------------------------------------------------------------------

    def _bucket(self, tags: Tags, limit: float) -> TokenBucket:
        now_s = self._now_s()
        found = self._buckets.pop(tags, None)
        if found is None:
            self._name_characters += sum(map(len, tags))
        while self._buckets and self._oldest_goes(now_s):
            oldest, _ = self._buckets.popitem(last=False)
            self._name_characters -= sum(map(len, oldest))
            self._metrics.remove(*_TOKENS, tags=_labels(oldest))
        policy = self._policy()
        window_s = float(policy.controller_quota_window_num * policy.controller_quota_window_size_seconds)
        bucket = TokenBucket(limit, window_s, now_s) if found is None else found[0]
        self._buckets[tags] = bucket, now_s
        bucket.limit = limit
        self._metrics.gauge(*_TOKENS, lambda: bucket.tokens(self._now_s()), tags=_labels(tags))
        return bucket

    def _oldest_goes(self, now_s: float) -> bool:
        _, asked_s = next(iter(self._buckets.values()))
        too_many = len(self._buckets) >= MAX_BUCKETS or self._name_characters > MAX_NAME_CHARACTERS
        return too_many or now_s - asked_s > IDLE_S


_TOKENS = ("kafka.server", "ControllerMutation", "tokens")


def _labels(tags: Tags) -> dict[str, str]:
    return {"user": paths.desanitize(tags[0]), "client-id": paths.desanitize(tags[1])}
