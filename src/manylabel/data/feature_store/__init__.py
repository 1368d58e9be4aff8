"""Features of a frozen backbone on disk: float16, memory-mapped, found again picture by picture."""

from manylabel.data.feature_store.kind import FeatureKind, Pooling
from manylabel.data.feature_store.picture_ids import picture_ids
from manylabel.data.feature_store.shelf import EXPORTS, StoreInfo, default_root, list_stores, remove_store
from manylabel.data.feature_store.store import FeatureStore
from manylabel.data.feature_store.writer import StoreWriter, check_room

__all__ = [
    "EXPORTS",
    "FeatureKind",
    "FeatureStore",
    "Pooling",
    "StoreInfo",
    "StoreWriter",
    "check_room",
    "default_root",
    "list_stores",
    "picture_ids",
    "remove_store",
]
