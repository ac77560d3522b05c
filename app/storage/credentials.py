"""Who asks a bucket, as the AWS tools are told: by AWS_* variables, or by a file of profiles."""

from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as Malformed
from dataclasses import dataclass, field
from pathlib import Path

from app.storage.failure import StorageFailed


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> "Credentials":
        """Raises `StorageFailed` where there are none. Roles are not assumed here: `aws configure export-credentials` does."""
        key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            return cls(key, secret, environment.get("AWS_SESSION_TOKEN", ""))
        return cls._of_profile(environment)

    @classmethod
    def _of_profile(cls, environment: Mapping[str, str]) -> "Credentials":
        file = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
        name = environment.get("AWS_PROFILE") or "default"
        profiles = ConfigParser(interpolation=None)
        try:
            profiles.read_string(file.read_text(encoding="utf-8"))
            profile = profiles[name]
            return cls(profile["aws_access_key_id"], profile["aws_secret_access_key"], profile.get("aws_session_token", ""))
        except (OSError, Malformed, KeyError) as error:
            raise StorageFailed(
                f"There are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put a profile {name} in {file}."
            ) from error
