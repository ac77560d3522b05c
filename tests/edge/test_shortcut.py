"""What goes past the framework is what the framework documents."""

from app.api import bulk, inference, tasks
from app.main import document_of
from tests.gateway.process import RunningGateway


def test_every_path_past_the_framework_is_one_that_it_documents() -> None:
    document = document_of()
    shortcuts = {**tasks.POSTS, **bulk.POSTS, **inference.POSTS}
    posts = {path for path, operations in document["paths"].items() if "post" in operations}
    assert shortcuts.keys() <= posts
    assert {path for path in posts - shortcuts.keys() if not path.endswith("/rerank")} == set()


async def test_a_templates_own_text_is_a_name_like_any_other(gateway: RunningGateway) -> None:
    for path in inference.POSTS:
        answer = await gateway.post(path, {"inputs": []})
        assert answer.status_code in (404, 422), answer.text
    for path in ("/v2/models//infer", "/v2/models/noop/infer/", "/v2/models/a/b/infer", "/v2/models/noop/versions//infer"):
        assert (await gateway.post(path, {})).status_code == 404
        assert (await gateway.post(path, {})).json()["code"] == "not_found"


async def test_a_path_by_template_is_counted_by_its_template(gateway: RunningGateway) -> None:
    for path, template in (
        ("/v2/models/none/infer", "/v2/models/{model}/infer"),
        ("/v2/models/none/versions/1/infer", "/v2/models/{model}/versions/{version}/infer"),
    ):
        before = await gateway.count("conch_requests_total", route=template)
        await gateway.post(path, {"inputs": []})
        assert await gateway.count("conch_requests_total", route=template) == before + 1
