"""What can go wrong with an object store.

ObjectStoreError (an OSError: what handles a failing disk handles a failing store)
├── ObjectNotFoundError      nothing has this name; the bucket itself may be missing
├── ObjectAccessError        credentials are missing, wrong, or without the right to do this
├── ObjectLostError          the store has acknowledged an object and does not have it, or has another one
├── UnlistedEndpointError    a job's spec names an endpoint that this process sends no credentials to
└── ObjectTooLargeError      an object has more bytes than one of its kind has
"""

from __future__ import annotations


class ObjectStoreError(OSError):
    """A request to an object store failed, after its retries; the message names the object and the cause."""


class ObjectNotFoundError(ObjectStoreError):
    pass


class ObjectAccessError(ObjectStoreError):
    pass


class UnlistedEndpointError(ObjectStoreError):
    pass


class ObjectLostError(ObjectStoreError):
    pass


class ObjectTooLargeError(ObjectStoreError):
    pass
