"""A dispatcher that shows what it does; needs the extra ``ui``."""

from virnucpro.dispatch.ui.rich_dispatcher import RichDispatcher

__all__ = ["RichDispatcher"]
