"""Everything a prediction needs, in one verified folder."""
