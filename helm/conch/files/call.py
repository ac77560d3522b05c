"""What `helm test` runs: whether the gateway lives, is ready, keeps strangers out, and knows the key that it was given."""

import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL, HOST, KEY = os.environ["URL"], os.environ.get("HOST"), os.environ.get("KEY")


def status(path: str, key: str | None = None) -> tuple[int, bytes]:
    headers = {"Host": HOST, "Authorization": key and f"Bearer {key}"}
    request = Request(URL + path, headers={name: value for name, value in headers.items() if value})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except HTTPError as refusal:
        return refusal.code, refusal.read()


expected = {"/livez": 200, "/readyz": 200, "/v1/models": 401}
wrong = [f"{path}: {got}, not {wanted}" for path, wanted in expected.items() if (got := status(path)[0]) != wanted]
if KEY:
    code, body = status("/v1/models", KEY)
    if code == 200:
        print("models:", *(model["id"] for model in json.loads(body)["data"]))
    else:
        wrong.append(f"/v1/models with the key: {code}")
print("\n".join(wrong) or "ok")
sys.exit(bool(wrong))
