"use strict";
// Scores images in the browser: model.onnx runs in onnxruntime-web, and model.json holds its labels, thresholds and input size.

const RUNTIME = "./ort.wasm.bundle.min.mjs"; // or its address on a CDN

document.getElementById("privacy").textContent = "The model runs in your browser: images never leave this device.";
document.querySelector("footer").remove();

let spec, session, runtime;
let last = Promise.resolve(); // one image at a time: the model runs in this thread

async function describe() {
  if (location.protocol === "file:") throw new Error("Browsers load models over HTTP only. In this folder, run: python -m http.server");
  say("Loading the model …");
  spec = await (await fetched("model.json")).json();
  runtime = await import(RUNTIME).catch(() => { throw new Error(`onnxruntime-web is missing: there is no ${RUNTIME} in this folder.`); });
  session = await runtime.InferenceSession.create(await (await fetched("model.onnx")).arrayBuffer());
  const labels = withNames((index) => ({ threshold: spec.thresholds?.[index] ?? (spec.single_label ? null : 0.5) }));
  return { model: spec.name, labels, single_label: spec.single_label, new_labels: false, explains: false, limits: { body_bytes: Infinity } };
}

async function fetched(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`There is no ${name} in this folder.`);
  return answer;
}

function predict(file, { top }) {
  const found = last.then(() => score(file));
  last = found.catch(() => {});
  return found.then((tags) => ({ tags: tags.sort((a, b) => b.score - a.score).slice(0, top) }));
}

async function score(file) {
  const [height, width] = spec.input.size;
  const images = new runtime.Tensor("uint8", await prepare(file, spec.input), [1, height, width, 3]);
  const { scores } = await session.run({ images }, ["scores"]);
  return withNames((index) => ({ score: scores.data[index] }));
}

function withNames(of) {
  const { names, display_names: shown } = spec.labels;
  return names.map((label, index) => ({ label, display_name: shown[label] ?? label, ...of(index) }));
}

// --- pixels, as manylabel/images.py makes them; an image is { height, width, data }, with RGBA bytes

async function prepare(file, { size: [height, width], resize: kind, crop_fraction: fraction, interpolation }) {
  const image = await decode(file);
  const fitted = kind === "crop"
    ? crop(cover(image, Math.trunc(height / fraction), Math.trunc(width / fraction), interpolation), height, width)
    : resize(image, height, width, interpolation);
  return Uint8Array.from(fitted.data.filter((_, index) => index % 4 < 3));
}

async function decode(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" }).catch(() => {
    throw new Error("This browser cannot read the image: it is damaged, or in a format that the browser does not support.");
  });
  const { height, width } = bitmap;
  const context = make("canvas", { height, width }).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // transparency becomes white
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return context.getImageData(0, 0, width, height);
}

function cover(image, rows, columns, interpolation) {
  const { height, width } = image;
  const cut = crop(image, Math.min(height, 8 * width), Math.min(width, 8 * height));
  return rows * cut.width >= columns * cut.height
    ? resize(cut, rows, Math.floor((rows * cut.width) / cut.height), interpolation)
    : resize(cut, Math.floor((columns * cut.height) / cut.width), columns, interpolation);
}

function crop({ height, width, data }, rows, columns) {
  const half = (value) => (value % 2 ? 2 * Math.round(value / 4) : value / 2); // Python rounds halves to even
  const [top, left] = [half(height - rows), half(width - columns)];
  const cut = new Uint8ClampedArray(rows * columns * 4);
  for (let row = 0; row < rows; row += 1) {
    const start = ((row + top) * width + left) * 4;
    cut.set(data.subarray(start, start + columns * 4), row * columns * 4);
  }
  return { height: rows, width: columns, data: cut };
}

// As Pillow: along rows first, unless the height shrinks by more than twice as many pixels as the width.
function resize(image, rows, columns, interpolation) {
  const filter = FILTERS[interpolation];
  const isTall = image.height > rows && image.height - rows > 2 * (image.width - columns);
  return isTall
    ? resample(resample(image, rows, filter, true), columns, filter, false)
    : resample(resample(image, columns, filter, false), rows, filter, true);
}

const FILTERS = {
  bilinear: { radius: 1, weigh: (x) => Math.max(0, 1 - x) },
  bicubic: { radius: 2, weigh: (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0) },
};
const BITS = 22; // after the point of a weight

function resample({ height, width, data }, size, { radius, weigh }, isVertical) {
  const [length, lines] = isVertical ? [height, width] : [width, height];
  const result = isVertical ? { height: size, width } : { height, width: size };
  result.data = new Uint8ClampedArray(result.height * result.width * 4);
  const steps = ({ width }) => (isVertical ? [4 * width, 4] : [4, 4 * width]); // along a line, and to the next line
  const [[step, next], [outStep, outNext]] = [steps({ width }), steps(result)];
  const scale = length / size;
  const stretch = Math.max(scale, 1);
  for (let place = 0; place < size; place += 1) {
    const middle = (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(middle - radius * stretch + 0.5));
    const end = Math.min(length, Math.trunc(middle + radius * stretch + 0.5));
    const raw = Array.from({ length: end - first }, (_, index) => weigh(Math.abs((index + first - middle + 0.5) / stretch)));
    const total = raw.reduce((sum, weight) => sum + weight, 0);
    const weights = Int32Array.from(raw, (weight) => Math.trunc((weight / total) * 2 ** BITS + (weight < 0 ? -0.5 : 0.5)));
    for (let line = 0; line < lines; line += 1) {
      let from = line * next + first * step;
      let red = 1 << (BITS - 1), green = red, blue = red; // rounds to nearest
      for (let index = 0; index < weights.length; index += 1, from += step) {
        red += weights[index] * data[from];
        green += weights[index] * data[from + 1];
        blue += weights[index] * data[from + 2];
      }
      const to = place * outStep + line * outNext;
      result.data[to] = red >> BITS;
      result.data[to + 1] = green >> BITS;
      result.data[to + 2] = blue >> BITS;
    }
  }
  return result;
}
