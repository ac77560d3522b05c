"""Conch: the REST front door of Triton for text models."""
