import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LockMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCK_MODE_EXCLUSIVE: _ClassVar[LockMode]
    LOCK_MODE_SHARED: _ClassVar[LockMode]
LOCK_MODE_EXCLUSIVE: LockMode
LOCK_MODE_SHARED: LockMode

class LockRequest(_message.Message):
    __slots__ = ("immediate", "resource_id", "ttl", "store_name", "request_id", "mode", "max_hold", "metadata", "no_renewal", "label", "wait", "namespace")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IMMEDIATE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NO_RENEWAL_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    immediate: bool
    resource_id: str
    ttl: _duration_pb2.Duration
    store_name: str
    request_id: str
    mode: LockMode
    max_hold: _duration_pb2.Duration
    metadata: _containers.ScalarMap[str, str]
    no_renewal: bool
    label: str
    wait: _duration_pb2.Duration
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, immediate: _Optional[bool] = ..., resource_id: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., store_name: _Optional[str] = ..., request_id: _Optional[str] = ..., mode: _Optional[_Union[LockMode, str]] = ..., max_hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., no_renewal: _Optional[bool] = ..., label: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class LockResponse(_message.Message):
    __slots__ = ("lock_id", "fencing_token", "ttl", "waited", "grant_id")
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    GRANT_ID_FIELD_NUMBER: _ClassVar[int]
    lock_id: str
    fencing_token: int
    ttl: _duration_pb2.Duration
    waited: _duration_pb2.Duration
    grant_id: str
    def __init__(self, lock_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grant_id: _Optional[str] = ...) -> None: ...

class RenewLockRequest(_message.Message):
    __slots__ = ("resource_id", "lock_id", "store_name", "ttl", "detach", "max_hold", "namespace")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    resource_id: str
    lock_id: str
    store_name: str
    ttl: _duration_pb2.Duration
    detach: bool
    max_hold: _duration_pb2.Duration
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource_id: _Optional[str] = ..., lock_id: _Optional[str] = ..., store_name: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., detach: _Optional[bool] = ..., max_hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class RenewLockResponse(_message.Message):
    __slots__ = ("ttl",)
    TTL_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    def __init__(self, ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class UnlockRequest(_message.Message):
    __slots__ = ("resource_id", "lock_id", "store_name", "namespace")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    resource_id: str
    lock_id: str
    store_name: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource_id: _Optional[str] = ..., lock_id: _Optional[str] = ..., store_name: _Optional[str] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class UnlockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForceUnlockRequest(_message.Message):
    __slots__ = ("resource_id", "store_name", "grant_id", "reason", "namespace")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    GRANT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    resource_id: str
    store_name: str
    grant_id: str
    reason: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource_id: _Optional[str] = ..., store_name: _Optional[str] = ..., grant_id: _Optional[str] = ..., reason: _Optional[str] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class ForceUnlockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LockServerStream(_message.Message):
    __slots__ = ("ping", "lock_acquired")
    PING_FIELD_NUMBER: _ClassVar[int]
    LOCK_ACQUIRED_FIELD_NUMBER: _ClassVar[int]
    ping: LockPing
    lock_acquired: LockAcquired
    def __init__(self, ping: _Optional[_Union[LockPing, _Mapping]] = ..., lock_acquired: _Optional[_Union[LockAcquired, _Mapping]] = ...) -> None: ...

class LockPing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LockAcquired(_message.Message):
    __slots__ = ("lock_id", "fencing_token", "ttl", "waited", "grant_id")
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    GRANT_ID_FIELD_NUMBER: _ClassVar[int]
    lock_id: str
    fencing_token: int
    ttl: _duration_pb2.Duration
    waited: _duration_pb2.Duration
    grant_id: str
    def __init__(self, lock_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grant_id: _Optional[str] = ...) -> None: ...

class LockLost(_message.Message):
    __slots__ = ("store_name", "resource_id", "lock_id", "fencing_token", "cause", "namespace")
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    store_name: str
    resource_id: str
    lock_id: str
    fencing_token: int
    cause: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store_name: _Optional[str] = ..., resource_id: _Optional[str] = ..., lock_id: _Optional[str] = ..., fencing_token: _Optional[int] = ..., cause: _Optional[str] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckLocksRequest(_message.Message):
    __slots__ = ("locks",)
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[LockRef]
    def __init__(self, locks: _Optional[_Iterable[_Union[LockRef, _Mapping]]] = ...) -> None: ...

class LockRef(_message.Message):
    __slots__ = ("store_name", "resource_id", "lock_id", "namespace")
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    store_name: str
    resource_id: str
    lock_id: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store_name: _Optional[str] = ..., resource_id: _Optional[str] = ..., lock_id: _Optional[str] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckLocksResponse(_message.Message):
    __slots__ = ("locks",)
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[LockCheck]
    def __init__(self, locks: _Optional[_Iterable[_Union[LockCheck, _Mapping]]] = ...) -> None: ...

class LockCheck(_message.Message):
    __slots__ = ("valid_for", "reason", "cause")
    VALID_FOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    valid_for: _duration_pb2.Duration
    reason: str
    cause: str
    def __init__(self, valid_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class LockKeepAliveRequest(_message.Message):
    __slots__ = ("id", "store_name", "resource_id", "lock_id", "ttl", "namespace")
    ID_FIELD_NUMBER: _ClassVar[int]
    STORE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    id: int
    store_name: str
    resource_id: str
    lock_id: str
    ttl: _duration_pb2.Duration
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., store_name: _Optional[str] = ..., resource_id: _Optional[str] = ..., lock_id: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., namespace: _Optional[_Iterable[str]] = ...) -> None: ...

class LockKeepAliveResponse(_message.Message):
    __slots__ = ("id", "ttl", "reason", "message", "held")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl: _duration_pb2.Duration
    reason: str
    message: str
    held: bool
    def __init__(self, id: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., held: _Optional[bool] = ...) -> None: ...
