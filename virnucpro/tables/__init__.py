"""Tables of a run: one declaration of their columns, one writer, one reader."""
