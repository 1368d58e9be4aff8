"""Lightning tasks, optimizers, callbacks, cached features and the teacher bank."""

from manylabel.training.cached_features import CachedFeatures, FeatureLoader
from manylabel.training.feature_progress import FeatureProgress
from manylabel.training.features import FeaturePlan, cache_features, plan_features

__all__ = ["CachedFeatures", "FeatureLoader", "FeaturePlan", "FeatureProgress", "cache_features", "plan_features"]
