"""Matrix products and attention shared by encoders."""
