"""Matrix products and attention of packed batches."""
