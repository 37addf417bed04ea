"""The two registrations by ephemeral znodes: the controller's and a broker's.

Each is one multi, so that no observer sees half of it; its reply may be lost.  A multi is never sent again blindly: the
ephemeral znode's owner shows afterwards whether it was applied.  Our own id does not: two controllers outside the
brokers may share one.

Winning ``/controller``, step by step (Kafka's ``registerControllerAndIncrementControllerEpoch``):

 1. Read ``/controller_epoch``: e, at znode version v.  If missing, it is created as 0.
 2. One multi: set ``/controller_epoch`` to e+1 if its version is v; in a takeover delete the present ``/controller``;
    create ``/controller``, ephemeral.
 3. A competitor that read the same e and v and comes second fails as a whole, because the first changed the version.
    This condition makes the takeover safe.  ``/controller``'s own version is always 0 and proves nothing.
 4. If the reply is lost or reports a conflict on the version or the znode: sync and read again.  The role is ours
    exactly if ``/controller`` belongs to our session, the epoch is e+1, and one transaction wrote both; every later
    round writes a higher epoch.
 5. From then on v+1 is the fence: every write of the controller begins with a check of it.

A takeover from a broker may be bound to a moment at which no topic is being deleted (``idle``; ``controller.deposing``
says why).  Its multi then also deletes ``/admin/delete_topics``, which ZooKeeper refuses while there are children, and
creates it again.  A deletion that is requested afterwards does no harm: the broker hears first that it was deposed.

A rollback of a migration to KRaft (``roll_back_migration``) is the same multi with an epoch above all that KRaft has
written, and with the deletion of what KRaft has claimed.

A standby reads e and v in advance, while another controller holds the role, and registers by step 2 alone
(``seize_controller``).  A release on request raises v but not e (``release_controller``): what standbys have read is
then outdated, and the difference between e and v shows, even later, that the role was given back on purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiocontroller.core.errors import AioControllerError, ControllerEpochError, ControllerMovedError
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, Op, OpResult, SetData
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError, SessionExpiredError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.znode_access import error_at
from aiocontroller.zookeeper.znode_json import BadZNode

if TYPE_CHECKING:
    from aiocontroller.zookeeper.migration_rollback import Rollback

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 20
"""Rounds of a registration lost to other writers before it is given up."""

_LOST = int(Code.CONNECTION_LOSS)


class _Session:
    """The session in which a registration began: a role won in a later session would not be the caller's."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self.generation = client.session.generation

    def check(self) -> None:
        if self._client.session.generation != self.generation:
            raise SessionExpiredError("the ZooKeeper session in which this registration began has expired")

    def owns(self, stat: Any) -> bool:
        """Whether this session owns the ephemeral znode with this Stat (persistent znodes have owner 0)."""
        owner: int = stat.ephemeral_owner
        return owner != 0 and owner == self._client.session_id


class TopicsBeingDeletedError(AioControllerError):
    """The holder of the role is deleting topics."""


class BrokerIdInUseError(AioControllerError):
    """The broker id is registered by a live session that is not ours."""


async def _multi(client: ZooKeeperClient, session: _Session, ops: Sequence[Op]) -> tuple[int, list[OpResult]]:
    """The multi's code (that of its failed operation, or CONNECTION_LOSS if unknown) and its results."""
    for _ in range(MAX_ATTEMPTS):
        session.check()  # nothing is awaited between this and the binding of the request to a session
        try:
            results = await client.multi(ops)
        except NotSentError:
            await client.sync("/")  # waits for the connection
            continue
        except MaybeAppliedError:
            return _LOST, []
        culprit = next((r.code for r in results if r.code not in (0, Code.RUNTIME_INCONSISTENCY)), 0)
        return culprit, results
    return _LOST, []


async def _stat_of(client: ZooKeeperClient, path: str) -> Any:
    """The current Stat, read after a sync; None without a znode."""
    await client.sync(path)
    return (await client.exists_many([path])).stat(0)


# -- the controller ---------------------------------------------------------------------------------------------------


class KnownEpoch(NamedTuple):
    """``/controller_epoch`` in the term of another controller, read in advance."""

    epoch: int
    version: int
    generation: int
    """Of the session that read it."""

    @property
    def releases(self) -> int:
        """To be compared with another term's: a difference means a release in between, or a write by hand."""
        return self.version - self.epoch


async def known_epoch(client: ZooKeeperClient, holder: znodes.ControllerZNode) -> KnownEpoch | None:
    """The epoch of the holder's term; None if it no longer holds the role, or the epoch cannot be read.

    One multiRead sees both at one moment.  ZooKeeper before 3.6 reads the epoch first: after an election in between, it
    is outdated, and ``seize_controller`` fails.
    """
    generation = client.session.generation
    reads = await client.get_many([paths.CONTROLLER_EPOCH, paths.CONTROLLER])
    if any(reads.code) or reads.ephemeral_owner(1) != holder.owner_session:
        return None
    epoch = znodes.decode_controller_epoch(reads.data[0])
    return None if isinstance(epoch, BadZNode) else KnownEpoch(epoch, reads.version[0], generation)


async def read_controller_epoch(client: ZooKeeperClient) -> tuple[int, int] | None:
    """(epoch, znode version), or None before the first; ControllerEpochError for a damaged epoch."""
    reads = await client.get_many([paths.CONTROLLER_EPOCH])
    if reads.code[0] == Code.NO_NODE:
        return None
    if reads.code[0]:
        raise error_at(paths.CONTROLLER_EPOCH, reads.code[0])
    epoch = znodes.decode_controller_epoch(reads.data[0])
    if isinstance(epoch, BadZNode):
        raise ControllerEpochError(f"{epoch.path}: found {epoch.found}, expected {epoch.expected}")
    return epoch, reads.version[0]


async def _epoch_to_beat(client: ZooKeeperClient, session: _Session) -> tuple[int, int]:
    for _ in range(MAX_ATTEMPTS):
        found = await read_controller_epoch(client)
        if found is not None:
            return found
        await _multi(client, session, [Create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))])
        await client.sync(paths.CONTROLLER_EPOCH)
    raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} vanishes whenever it is created")


async def _holder(client: ZooKeeperClient, session: _Session, *, takeover: bool, deposing: int | None) -> bool:
    """Whether an existing ``/controller`` must be deleted; raises an error if it may not be.

    A znode of our own session is left over from an abandoned round, and is always replaced.
    """
    await client.sync(paths.CONTROLLER)
    reads = await client.get_many([paths.CONTROLLER])
    if reads.code[0] == Code.NO_NODE:
        return False
    stat = reads.stat(0)
    holder = znodes.decode_controller(reads.data[0])
    if isinstance(holder, znodes.ControllerZNode) and holder.kraft_controller_epoch > 0:
        raise ControllerMovedError(
            f"{paths.CONTROLLER} belongs to KRaft controller {holder.controller_id} "
            f"(epoch {holder.kraft_controller_epoch}): the cluster is being migrated"
        )
    if session.owns(stat) or (takeover and deposing in (None, stat.ephemeral_owner)):
        return True
    raise ControllerMovedError(f"{paths.CONTROLLER} is held by session 0x{stat.ephemeral_owner & (2**64 - 1):x}")


async def _while_no_topic_is_deleted(client: ZooKeeperClient) -> list[Op]:
    """Operations that change nothing and fail while topics are being deleted."""
    try:
        acl = await client.get_acl(paths.DELETE_TOPICS)
    except exc.NoNode:
        return []  # nor can one be requested
    return [Delete(paths.DELETE_TOPICS), Create(paths.DELETE_TOPICS, acl=acl)]


async def register_controller(
    client: ZooKeeperClient,
    controller_id: int,
    timestamp_ms: int,
    *,
    takeover: bool,
    deposing: int | None = None,
    idle: bool = False,
    address: str = "",
) -> tuple[int, int]:
    """(new epoch, its znode version); raises ControllerMovedError if another controller has the role.

    A takeover that is ``deposing`` a session takes the role from that session only: of several standbys, one wins.
    Raises SessionExpiredError if the session ends meanwhile, since the role would have ended with it.  With ``idle`` it
    raises TopicsBeingDeletedError if the holder may be deleting topics, and ``exc.NoAuth`` or ``exc.InvalidACL`` if we
    may not find out.
    """
    session = _Session(client)
    data = znodes.encode_controller(controller_id, timestamp_ms, address=address)
    for _ in range(MAX_ATTEMPTS):
        epoch, version = await _epoch_to_beat(client, session)
        present = await _holder(client, session, takeover=takeover, deposing=deposing)
        replaced: list[Op] = [Delete(paths.CONTROLLER)] if present else []
        if present and idle:
            replaced += await _while_no_topic_is_deleted(client)
        code, fence = await _round(client, session, epoch + 1, version, data, replaced)
        won = (epoch + 1, fence) if code == 0 else await _resolve(client, session, epoch + 1)
        if won is not None:
            client.fence_generation = session.generation
            return won
        if code == Code.NOT_EMPTY:
            raise TopicsBeingDeletedError("the controller is deleting topics")
        # lost to another: without takeover _holder raises in the next round; with it we replace the new holder
    raise ControllerMovedError(f"lost {MAX_ATTEMPTS} rounds for {paths.CONTROLLER}")


async def seize_controller(
    client: ZooKeeperClient,
    known: KnownEpoch,
    controller_id: int,
    timestamp_ms: int,
    *,
    replacing: bool = False,
    address: str = "",
) -> tuple[int, int]:
    """Register in one round trip: (new epoch, its znode version).

    ``/controller`` must be absent, or with ``replacing`` be the one of the known term, which is deleted.  Otherwise
    ControllerMovedError is raised, and nothing is written.  Raises SessionExpiredError like ``register_controller``.
    """
    session = _Session(client)
    if known.generation != session.generation:
        raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} was read in an earlier session")
    data = znodes.encode_controller(controller_id, timestamp_ms, address=address)
    deletes = [Delete(paths.CONTROLLER)] if replacing else []
    code, fence = await _round(client, session, known.epoch + 1, known.version, data, deletes)
    won = None
    if code == 0:
        won = known.epoch + 1, fence
    elif code == _LOST:
        won = await _resolve(client, session, known.epoch + 1)
    if won is None:
        raise ControllerMovedError(f"another controller was elected after epoch {known.epoch}, or the role is held")
    client.fence_generation = session.generation
    return won


async def _round(
    client: ZooKeeperClient, session: _Session, epoch: int, version: int, data: bytes, replaced: Sequence[Op]
) -> tuple[int, int]:
    """Step 2, with the new ``epoch``: the multi's code (0, a conflict's, or _LOST), and the epoch's new version if it
    is 0."""
    ops: list[Op] = [
        SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
        *replaced,
        Create(paths.CONTROLLER, data, ephemeral=True),
    ]
    code, results = await _multi(client, session, ops)
    if code not in (0, _LOST, Code.NODE_EXISTS, Code.BAD_VERSION, Code.NO_NODE, Code.NOT_EMPTY):
        raise error_at(paths.CONTROLLER, code)
    return code, results[0].version if code == 0 else -1


async def _resolve(client: ZooKeeperClient, session: _Session, epoch: int) -> tuple[int, int] | None:
    """Step 4: (epoch, znode version) if we won the round that was to write ``epoch`` after all, else None."""
    stat = await _stat_of(client, paths.CONTROLLER)
    found = await read_controller_epoch(client)
    written = (await client.exists_many([paths.CONTROLLER_EPOCH])).stat(0)
    session.check()
    if stat is None or written is None or found is None or not session.owns(stat) or found[0] != epoch:
        return None
    # One transaction must have written both; otherwise the epoch was written by hand.
    return found if stat.created_zxid == written.last_modified_zxid else None


async def roll_back_migration(
    client: ZooKeeperClient, plan: Rollback, controller_id: int, timestamp_ms: int, *, address: str = ""
) -> tuple[int, int]:
    """Take the role from a KRaft controller as planned: (new epoch, its znode version).

    Raises ControllerMovedError and writes nothing if one of the znodes has changed since the plan was made.
    Raises SessionExpiredError like ``register_controller``.
    """
    session = _Session(client)
    data = znodes.encode_controller(controller_id, timestamp_ms, address=address)
    deletes = [Delete(each.path, each.version) for each in plan.deleted]
    code, fence = await _round(client, session, plan.epoch, plan.epoch_before.version, data, deletes)
    won = (plan.epoch, fence) if code == 0 else None
    if code == _LOST:
        won = await _resolve(client, session, plan.epoch)
    if won is None:
        changed = ", ".join(each.path for each in (plan.epoch_before, *plan.deleted))
        raise ControllerMovedError(f"one of {changed} has changed meanwhile: another process is still writing")
    client.fence_generation = session.generation
    return won


async def delete_controller(client: ZooKeeperClient, fence: int) -> None:
    """Give the role back: delete ``/controller`` if the fence still holds."""
    writes = await client.write_many([Delete(paths.CONTROLLER)], fence=fence)
    if writes.code[0] not in (0, Code.NO_NODE):
        raise error_at(paths.CONTROLLER, writes.code[0])


async def release_controller(client: ZooKeeperClient, epoch: int, fence: int) -> None:
    """Give the role back on request: as above, in one multi that also rewrites the epoch, which standbys notice.

    Raises ControllerMovedError if the fence does not hold, even if our own write broke it and its reply was lost.
    """
    mark = SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), fence)
    [code] = await client.write_together([[mark, Delete(paths.CONTROLLER)]], fence=fence)
    if code not in (0, Code.NO_NODE):
        raise error_at(paths.CONTROLLER, code)


# -- a broker ---------------------------------------------------------------------------------------------------------


async def register_broker(client: ZooKeeperClient, info: znodes.BrokerInfo, previous_session: int | None) -> int:
    """Register a broker; returns its epoch: czxid of the ephemeral ``/brokers/ids/N`` (Kafka's ``CheckedEphemeral``).

    The znode is created empty and set in one multi, since the reply to a set has the Stat.  A znode left by our own
    ``previous_session``, which the server should have removed (KAFKA-7165, ZOOKEEPER-2985), is replaced;
    BrokerIdInUseError for one of another session.
    """
    path = paths.broker_id(info.broker.id)
    session = _Session(client)
    for _ in range(MAX_ATTEMPTS):
        code, results = await _multi(
            client, session, [Create(path, None, ephemeral=True), SetData(path, znodes.encode_broker(info), 0)]
        )
        if code == 0:
            return int(results[1].stat.created_zxid)
        if code == Code.NO_NODE:
            await client.ensure_path(paths.BROKER_IDS)
            continue
        if code not in (_LOST, Code.NODE_EXISTS):
            raise error_at(path, code)
        stat = await _stat_of(client, path)
        if stat is None:
            continue
        session.check()
        if session.owns(stat):
            return int(stat.created_zxid)
        owner = stat.ephemeral_owner
        if owner != previous_session:
            raise BrokerIdInUseError(
                f"broker id {info.broker.id} is registered by session 0x{owner & (2**64 - 1):x}, "
                f"not by ours, 0x{client.session_id & (2**64 - 1):x}"
            )
        await _multi(client, session, [Delete(path)])
    raise BrokerIdInUseError(f"{path} came and went {MAX_ATTEMPTS} times while it was being registered")


async def delete_broker_registration(client: ZooKeeperClient, broker_id: int, epoch: int, fence: int) -> bool:
    """Delete ``/brokers/ids/N`` of the incarnation with this czxid; False if another or none is registered.

    ZooKeeper deletes by data version, which is the same for every incarnation.  So this one is marked first:
     1. Read: the czxid is the expected one, at version v.
     2. Set the same data again if the version is v.  The version is now v+1, which no new registration has.
     3. Read again: the czxid is unchanged.
     4. Delete if the version is v+1.

    If the session ends and the id is registered again between 1 and 2, the new znode has the old data until its broker
    changes it; step 3 notices, and the znode is not deleted.
    """
    path = paths.broker_id(broker_id)
    await client.sync(path)
    reads = await client.get_many([path])
    if reads.code[0] != 0 or reads.stat(0).created_zxid != epoch:
        return False
    marked = await client.write_many([SetData(path, reads.data[0] or b"", reads.version[0])], fence=fence)
    if marked.code[0] != 0:
        return False
    stat = await _stat_of(client, path)
    if stat is None:
        return False
    if stat.created_zxid != epoch:
        log.error("%s was registered again at the moment it was marked: its data may be outdated", path)
        return False
    deleted = await client.write_many([Delete(path, marked.version[0])], fence=fence)
    return deleted.code[0] == 0
