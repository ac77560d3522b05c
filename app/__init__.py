"""Conch: the REST front door of Triton for text models."""

__version__ = "0.1.0"
