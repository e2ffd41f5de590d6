"""A dispatcher with a progress display; needs the extra ``ui``."""

from virnucpro.dispatch.ui.rich_dispatcher import RichDispatcher

__all__ = ["RichDispatcher"]
