"""Models in local Hugging Face folders, through the optional package transformers."""
