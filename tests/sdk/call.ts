// Calls a gateway through openapi-fetch with the generated types, and prints what came back as JSON.
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./conch.js";

type Problem = components["schemas"]["Problem"];

const [baseUrl = "", key = "", tightKey = ""] = process.argv.slice(2);

function as(token: string): Client<paths> {
  return createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
}

const client = as(key);

function ask(inputs: string[], model = "words", by = client) {
  return by.POST("/v1/classify", { body: { model, inputs, top_k: 2 } });
}

function told({ error, response }: { error?: Problem; response: Response }) {
  if (!error) throw new Error(`${response.status}, and no problem`);
  return {
    status: response.status,
    code: error.code,
    pointers: (error.errors ?? []).map((flaw) => flaw.pointer),
    waits: Number(response.headers.get("retry-after")) >= 1,
    named: response.headers.get("x-request-id") === error.request_id,
  };
}

async function limited() {
  const tight = as(tightKey);
  for (;;) {
    const answer = await ask(["a"], "words", tight);
    if (answer.error) return told(answer);
  }
}

const sorted = await ask(["a", "b"]);
const models = await client.GET("/v1/models");
const vectors = await client.POST("/v1/embeddings", { body: { model: "vectors", input: "a" } });
const found = await client.POST("/v1/entities", { body: { model: "spans", inputs: ["a"], offsets: "utf16" } });
// @ts-expect-error A member that a request does not have is found when it is compiled.
void (() => client.POST("/v1/classify", { body: { model: "words", input: ["a"] } }));

console.log(
  JSON.stringify({
    labels: sorted.data?.results[1]?.labels.map((label) => label.label),
    models: models.data?.data.map((card) => card.id).sort(),
    dimensions: vectors.data?.data[0]?.embedding.length,
    entities: found.data?.results[0]?.entities.length,
    invalid: told(await ask([])),
    unauthenticated: told(await ask(["a"], "words", as("nobody's"))),
    limited: await limited(),
    unavailable: told(await ask(["a"], "brief")),
  }),
);
