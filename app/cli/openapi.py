"""The OpenAPI document, without a gateway."""

import click


@click.command()
@click.option("--form", type=click.Choice(["3.1", "3.0"]), default="3.1", show_default=True, help="The version of OpenAPI.")
def openapi(form: str) -> None:
    """Print the OpenAPI document, to generate a client from.

    It is the same bytes that a gateway of this version serves at /openapi.json, or, for generators that don't know 3.1 yet, at
    /openapi-3.0.json.
    """
    from app.api.document import serialized
    from app.api.openapi_30 import in_3_0
    from app.main import document_of

    document = document_of()
    click.echo(serialized(in_3_0(document) if form == "3.0" else document), nl=False)
