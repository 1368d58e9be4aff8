"use strict";
// Scores images on the server: each image is one request, and the server batches them.

const MAX_TRIES = 5;

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function ask(path, form) {
  const headers = state.key ? { Authorization: `Bearer ${state.key}` } : {};
  for (let tries = 1; ; tries += 1) {
    let answer;
    try {
      answer = await fetch(path, form ? { method: "POST", body: form, headers } : { headers });
    } catch {
      throw new Error("The server is not responding. Is it still running?");
    }
    if (answer.ok) return answer.json();
    if (answer.status === 429 && tries < MAX_TRIES) {
      await pause(Math.min(Number(answer.headers.get("Retry-After")) || 1, 10));
      continue;
    }
    if (answer.status === 401) find("key").hidden = false;
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.message || `The server responded with status ${answer.status}.`);
  }
}

function askAbout(file, path, options) {
  const form = new FormData();
  form.append("images", file, file.name);
  const pairs = Object.entries(options).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  return ask(`${path}?${new URLSearchParams(pairs)}`, form);
}

const describe = () => ask("/v1/labels");

async function predict(file, options) {
  const { images: [{ tags }], unknown_labels: unknown } = await askAbout(file, "/v1/predict", options);
  return { tags, unknown };
}

const explain = async (file, labels) => (await askAbout(file, "/v1/explain", { labels })).explanations;
