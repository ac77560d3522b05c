#!/bin/sh
# The secrets of compose.yaml, made once and kept: who may write and read the object storage, and Grafana's first password.
# Other folder: CONCH_SECRETS, which compose.yaml reads too.
set -eu
folder=${CONCH_SECRETS:-.conch/compose}

random() { od -An -N20 -tx1 /dev/urandom | tr -d ' \n'; }

if [ -e "$folder/storage_identities.json" ]; then
  echo "$folder has the secrets already"
  exit 0
fi
umask 077
mkdir -p "$folder"
publisher=$(random)
triton=$(random)
printf '[default]\naws_access_key_id = publisher\naws_secret_access_key = %s\n' "$publisher" >"$folder/publisher_credentials"
printf '[default]\naws_access_key_id = triton\naws_secret_access_key = %s\n' "$triton" >"$folder/triton_credentials"
random >"$folder/grafana_password"
cat >"$folder/storage_identities.json" <<END
{"identities": [
  {"name": "publisher", "credentials": [{"accessKey": "publisher", "secretKey": "$publisher"}], "actions": ["Admin"]},
  {"name": "triton", "credentials": [{"accessKey": "triton", "secretKey": "$triton"}], "actions": ["Read:models", "List:models"]}
]}
END
# Containers read them under users of their own; nobody else on this machine gets into the folder.
chmod 644 "$folder"/*
echo "the secrets are in $folder"
