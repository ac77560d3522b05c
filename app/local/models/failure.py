class BuildFailed(Exception):
    """Why there is no model repository, and what to do: sentences for a person."""
