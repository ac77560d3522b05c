"use strict";

// The key is entered once and remembered for this tab alone: sessionStorage ends with the tab, and no other tab sees it.
const KEPT = "conch.authorization";

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function rememberAuthorization(system) {
  const keep = (original) => (credentials) => {
    const result = original(credentials);
    sessionStorage.setItem(KEPT, JSON.stringify(system.authSelectors.authorized()));
    return result;
  };
  return { statePlugins: { auth: { wrapActions: { authorize: keep, logout: keep } } } };
}

const ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false, // it would be in localStorage, for ever
  validatorUrl: null, // or a badge is asked of a stranger, who then sees the document's address
  requestSnippetsEnabled: true,
  plugins: [rememberAuthorization],
  onComplete: () => ui.authActions.restoreAuthorization({ authorized: remembered() }),
});
