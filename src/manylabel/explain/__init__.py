"""Why a model says what it says."""
