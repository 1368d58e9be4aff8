"use strict";
// backend.js scores the images: describe(), predict(file, options) and explain(file, labels). It is server.js on the page of
// `manylabel serve`, and browser.js on a page of `manylabel export --web`. As many scores as a response may hold are stored, so
// moving the slider needs no request. Heat maps are fetched on demand.

const AT_ONCE = 4;
const MAX_TAGS = 100;
const MAX_KNOWN = 80;
const MAX_UNKNOWN = 5;

const find = (id) => document.getElementById(id);
const state = {
  model: null, loading: false, cards: [], own: true, threshold: 0.5, newTags: [], unknown: new Map(), key: "", trouble: new Set(), warm: false,
  waiting: [], running: 0,
};

function make(kind, properties = {}, ...children) {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
}

const percent = (fraction) => `${Math.round(100 * fraction)} %`;
const say = (words) => { find("status").textContent = words; };

// --- tagging

async function fill(card) {
  const most = state.model.limits.body_bytes;
  if (card.file.size > most) {
    const size = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
    throw new Error(`The file is too large: ${size(card.file.size)}; the limit is ${size(most)}.`);
  }
  card.tags ??= (await predict(card.file, { top: MAX_TAGS })).tags;
  const missing = state.newTags.filter((name) => !card.asked.has(name));
  if (!missing.length) return;
  try {
    const { tags, unknown } = await predict(card.file, { labels: missing, threshold: 0 });
    for (const tag of tags) card.asked.set(tag.label, tag);
    for (const { label, nearest } of unknown) state.unknown.set(label, nearest.join(", "));
    if (unknown.length) showChips();
  } catch (error) { // the tags of the model's own labels remain valid
    state.newTags = state.newTags.filter((name) => !missing.includes(name));
    state.trouble.add(` ${missing.join(", ")}: ${error.message}`);
    showChips();
  }
}

function enqueue(cards) {
  for (const card of cards) card.busy = true;
  state.waiting.push(...cards);
  cards.forEach(render);
  while (state.model && state.running < AT_ONCE && state.waiting.length) work();
}

async function work() {
  state.running += 1;
  while (state.waiting.length) {
    const card = state.waiting.shift();
    try {
      await fill(card);
      card.problem = "";
      warmUp(card);
    } catch (error) {
      card.problem = error.message;
    }
    card.busy = false;
    render(card);
  }
  state.running -= 1;
  if (!state.running) announce();
}

// --- tags

const mostConfidentOnly = () => state.own && state.model?.single_label;

function limitOf({ label, threshold }) {
  if (!state.own) return state.threshold;
  return threshold ?? state.model.thresholds.get(label) ?? 0.5;
}

function allTags(card) {
  const asked = state.newTags.map((name) => card.asked.get(name)).filter(Boolean);
  const names = new Set(asked.map((tag) => tag.label));
  const tags = (card.tags ?? []).filter((tag) => !names.has(tag.label));
  return [...asked, ...tags].sort((a, b) => b.score - a.score);
}

function shownTags(card) {
  const tags = allTags(card);
  return mostConfidentOnly() ? tags.slice(0, 1) : tags.filter((tag) => tag.score >= limitOf(tag));
}

function results() {
  return state.cards.map((card) => ({
    image: card.file.name,
    ...(card.problem ? { error: card.problem } : { tags: shownTags(card).map(({ label, score }) => ({ label, score })) }),
  }));
}

function announce() {
  const bad = state.cards.filter((card) => card.problem).length;
  const count = `${state.cards.length} image${state.cards.length === 1 ? "" : "s"}`;
  const hint = state.model?.explains ? " Hover over a tag, or tap it, to see its heat map." : "";
  const notes = [...state.trouble, unknownTags()].join("") || hint;
  say(state.cards.length ? `${count}${bad ? `, ${bad} could not be tagged` : ""}.${notes}` : "");
  state.trouble.clear();
}

function unknownTags() {
  const names = state.newTags.filter((name) => state.unknown.has(name));
  const more = names.length > MAX_UNKNOWN ? ` And ${names.length - MAX_UNKNOWN} more.` : "";
  const shown = names.slice(0, MAX_UNKNOWN).map((name) => ` ${name} (nearest: ${state.unknown.get(name)})`).join(";");
  return names.length ? ` Not known, so no image is tagged with it:${shown}.${more}` : "";
}

// --- heat maps

async function heatMap(card, label) {
  if (!card.heat.has(label)) {
    const others = shownTags(card).map((tag) => tag.label).filter((name) => name !== label && !card.heat.has(name));
    const labels = [label, ...others].slice(0, state.model.limits.explained_labels);
    const coming = explain(card.file, labels);
    for (const name of labels) {
      card.heat.set(name, coming.then((found) => found.find((each) => each.label === name)));
      card.heat.get(name).catch(() => card.heat.delete(name));
    }
  }
  return card.heat.get(label);
}

// The first heat map takes seconds, because the server loads the torch model for it: request one ahead of time.
function warmUp(card) {
  const [best] = shownTags(card);
  if (state.warm || !best || !state.model.explains) return;
  state.warm = true;
  heatMap(card, best.label).catch(() => {});
}

async function show(card, label) {
  card.looked = label;
  const { root, overlay, caption } = card.parts;
  if (!label) {
    root.classList.remove("heated", "waiting");
    caption.hidden = true;
    return;
  }
  root.classList.add("waiting");
  try {
    const found = await heatMap(card, label);
    if (card.looked !== label) return;
    overlay.src = found.overlay;
    overlay.alt = `Heat map of ${found.display_name}`;
    caption.textContent = `${found.display_name}: heat map`;
    caption.hidden = false;
    root.classList.add("heated");
  } catch (error) {
    if (card.looked === label) say(error.message);
  }
  if (card.looked === label) root.classList.remove("waiting");
}

function pin(card, label) {
  card.pinned = card.pinned === label ? null : label;
  for (const button of card.parts.list.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === card.pinned));
  }
  show(card, card.pinned);
}

// --- cards

function addFiles(files) {
  const cards = [...files].map(makeCard);
  if (!cards.length) return;
  state.cards.unshift(...cards);
  find("cards").prepend(...cards.map((card) => card.parts.root));
  refresh();
  if (state.model) say(`Tagging ${cards.length} image${cards.length === 1 ? "" : "s"} …`);
  enqueue(cards);
}

function makeCard(file) {
  const address = URL.createObjectURL(file);
  const photo = make("img", { className: "photo", src: address, alt: file.name });
  const parts = {
    overlay: make("img", { className: "heat", alt: "" }),
    caption: make("figcaption", { hidden: true }),
    list: make("ul", { className: "tags" }),
    words: make("p", { className: "hint" }),
  };
  const card = { file, address, parts, tags: null, asked: new Map(), heat: new Map(), problem: "", busy: true, pinned: null, looked: null };
  const remove = make("button", { className: "remove", type: "button", textContent: "×" });
  remove.setAttribute("aria-label", `Remove ${file.name}`);
  remove.addEventListener("click", () => removeCards([card]));
  photo.addEventListener("error", () => photo.remove());
  const figure = make("figure", {}, make("div", { className: "frame" }, photo, parts.overlay), parts.caption, remove);
  const title = make("h2", { textContent: file.name, title: file.name });
  const body = make("div", { className: "body" }, title, parts.list, parts.words);
  parts.root = make("article", {}, make("div", { className: "inside" }, figure, body));
  return card;
}

function tagRow(card, tag) {
  const bar = make("div", { className: "bar" }, make("i"), ...(mostConfidentOnly() ? [] : [make("u")]));
  bar.style.setProperty("--score", tag.score);
  bar.style.setProperty("--limit", limitOf(tag));
  const name = make("b", { textContent: tag.display_name });
  if (card.asked.has(tag.label) && !state.model.thresholds.has(tag.label)) name.append(make("small", { textContent: "new" }));
  const row = make(state.model.explains ? "button" : "div", { className: "tag" }, name, bar, make("span", { textContent: percent(tag.score) }));
  if (!state.model.explains) return make("li", {}, row);
  Object.assign(row, { type: "button", title: `Show the heat map of ${tag.display_name}` });
  row.dataset.label = tag.label;
  row.setAttribute("aria-pressed", String(card.pinned === tag.label));
  for (const event of ["pointerenter", "focus"]) row.addEventListener(event, () => show(card, tag.label));
  for (const event of ["pointerleave", "blur"]) row.addEventListener(event, () => show(card, card.pinned));
  row.addEventListener("click", () => pin(card, tag.label));
  return make("li", {}, row);
}

function render(card) {
  const { root, list, words } = card.parts;
  const tags = card.problem ? [] : shownTags(card);
  root.classList.toggle("waiting", card.busy);
  root.setAttribute("aria-busy", String(card.busy));
  list.replaceChildren(...tags.map((tag) => tagRow(card, tag)));
  words.className = card.problem ? "problem" : "hint";
  words.textContent = card.problem || (card.busy ? "Tagging …" : tags.length ? "" : noTags(card));
  words.hidden = !words.textContent;
}

function noTags(card) {
  const [best] = allTags(card);
  return best ? `No tag reaches its threshold. Most likely: ${best.display_name}, ${percent(best.score)}.` : "";
}

function removeCards(cards) {
  for (const card of cards) {
    URL.revokeObjectURL(card.address);
    card.parts.root.remove();
  }
  state.cards = state.cards.filter((card) => !cards.includes(card));
  state.waiting = state.waiting.filter((card) => !cards.includes(card));
  refresh();
  announce();
  find("files").focus();
}

function refresh() {
  document.body.classList.toggle("some", state.cards.length > 0);
  find("tools").hidden = !state.cards.length;
  const shown = mostConfidentOnly()
    ? "the most confident tag" : `tags at or above ${state.own ? "the model's thresholds" : percent(state.threshold)}`;
  find("threshold-shown").textContent = shown;
  find("threshold").setAttribute("aria-valuetext", shown); // its own number is not used until it is moved
  find("own").setAttribute("aria-pressed", String(state.own));
}

function setThreshold(own) {
  state.own = own;
  state.threshold = Number(find("threshold").value) / 100;
  refresh();
  state.cards.forEach(render);
}

// --- new tags

function addNewTags(text) {
  const { limits } = state.model;
  const names = text.split(/[,;\n]/).map((name) => name.trim()).filter(Boolean);
  const wanted = [...new Set([...state.newTags, ...names])];
  state.newTags = wanted.filter((name) => name.length <= limits.label_length).slice(0, limits.labels);
  if (state.newTags.length < wanted.length) {
    state.trouble.add(` Only ${limits.labels} tags of at most ${limits.label_length} characters can be typed; the others were left out.`);
  }
  showChips();
  enqueue(state.cards.filter((card) => !card.busy));
}

function showChips() {
  find("chips").replaceChildren(...state.newTags.map((name) => {
    const chip = make("button", { type: "button", textContent: name, ariaLabel: `Remove ${name}`, title: `Remove ${name}` });
    chip.classList.toggle("unknown", state.unknown.has(name));
    chip.addEventListener("click", () => {
      state.newTags = state.newTags.filter((other) => other !== name);
      showChips();
      state.cards.forEach(render);
      announce();
    });
    return make("li", {}, chip);
  }));
}

// --- results

async function copy() {
  const lines = results().map(({ image, tags, error }) =>
    `${image}\t${error ?? tags.map(({ label, score }) => `${label} ${score.toFixed(2)}`).join(", ")}`);
  const text = lines.join("\n");
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without https, or without permission
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Tags copied to the clipboard.");
}

function download(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// As manylabel/label_text.py: no cell is parsed as a formula by spreadsheets, and `csv:FILE` reads every label back.
const protect = (text) => (/^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text);
const joinLabels = (labels) =>
  protect(labels.map((label) => label.replace(/[\x00-\x1f\x7f-\x9f|]|%(?=[0-9a-f]{2})/gi, encodeURIComponent)).join("|"));

function csv() {
  const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const rows = results().map(({ image, tags = [], error = "" }) =>
    [protect(image), joinLabels(tags.map((tag) => tag.label)), tags.map((tag) => tag.score).join("|"), protect(error)]
      .map(quote).join(","));
  return ["image,tags,scores,error", ...rows].join("\r\n") + "\r\n";
}

// --- start

// Images that arrive while the model is loading wait for it.
async function start() {
  state.loading = true;
  try {
    const model = await describe();
    model.thresholds = new Map(model.labels.map(({ label, threshold }) => [label, threshold]));
    state.model = model;
  } catch (error) {
    say(error.message);
    for (const card of state.waiting) render(Object.assign(card, { busy: false, problem: error.message }));
    return;
  } finally {
    state.loading = false;
  }
  find("key").hidden = true;
  say("");
  find("model").textContent = `${state.model.model} · ${state.model.labels.length.toLocaleString("en")} labels`;
  find("new-tags").hidden = !state.model.new_labels;
  if (mostConfidentOnly()) Object.assign(find("own"), { textContent: "Most confident only", title: "Each image has one tag" });
  showKnown();
  state.waiting = [];
  enqueue(state.cards);
}

function showKnown() {
  const { labels, new_labels: takesNew } = state.model;
  const more = labels.length > MAX_KNOWN ? [`and ${(labels.length - MAX_KNOWN).toLocaleString("en")} more`] : [];
  const names = labels.slice(0, MAX_KNOWN).map((each) => each.display_name);
  find("known-title").textContent = takesNew ? "Labels, and any other tag you type" : "Labels";
  find("known").querySelector("ul").replaceChildren(...[...names, ...more].map((textContent) => make("li", { textContent })));
  find("known").hidden = false;
}

function listen() {
  const take = (files) => (state.model || state.loading ? addFiles([...files].filter((file) => file instanceof File)) : undefined);
  find("files").addEventListener("change", ({ target }) => { take(target.files); target.value = ""; });
  document.addEventListener("paste", ({ clipboardData }) => take(clipboardData?.files ?? []));
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
  document.addEventListener("dragleave", ({ relatedTarget }) => { if (!relatedTarget) document.body.classList.remove("dragging"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    take(event.dataTransfer?.files ?? []);
  });
  find("threshold").addEventListener("input", () => setThreshold(false));
  find("own").addEventListener("click", () => setThreshold(!state.own));
  find("copy").addEventListener("click", copy);
  find("json").addEventListener("click", () => download("tags.json", "application/json", JSON.stringify(results(), null, 2)));
  find("csv").addEventListener("click", () => download("tags.csv", "text/csv", csv()));
  find("clear").addEventListener("click", () => removeCards(state.cards));
  find("key").addEventListener("submit", (event) => { event.preventDefault(); state.key = find("key-text").value; start(); });
  find("new-tags").addEventListener("submit", (event) => {
    event.preventDefault();
    addNewTags(find("new-tag").value);
    find("new-tag").value = "";
  });
}

listen();
start();
