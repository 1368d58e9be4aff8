"""Features of a frozen backbone on disk: float16, memory-mapped, one folder per request."""

from manylabel.data.feature_store.fingerprint import fingerprint_pictures
from manylabel.data.feature_store.request import FeatureRequest, Pooling
from manylabel.data.feature_store.shelf import StoreInfo, default_root, list_stores, remove_store
from manylabel.data.feature_store.store import FeatureStore
from manylabel.data.feature_store.writer import StoreWriter, check_room, missing_bytes

__all__ = [
    "FeatureRequest",
    "FeatureStore",
    "Pooling",
    "StoreInfo",
    "StoreWriter",
    "check_room",
    "default_root",
    "fingerprint_pictures",
    "list_stores",
    "missing_bytes",
    "remove_store",
]
