from tests.runtime.conftest import stage

__all__ = ["stage"]
