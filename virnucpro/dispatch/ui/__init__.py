"""A dispatcher with a progress display; requires the package extra ``ui``."""

from virnucpro.dispatch.ui.rich_dispatcher import RichDispatcher

__all__ = ["RichDispatcher"]
