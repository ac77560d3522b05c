class StorageFailed(Exception):
    """Why a bucket could not be read or written, and what to do: a sentence for a person."""
