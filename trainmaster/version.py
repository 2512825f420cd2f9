"""The versions, in one place that costs nothing to import."""

VERSION = "0.1.0"
API_VERSION = "0.38.1"
"""The release of Determined whose API the master speaks. Its clients compare it with their own."""
