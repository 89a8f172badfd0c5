"use strict";
// Shows the hop lists of the row under the pointer, or of the row whose number is typed. The rest of the page works without this script.
for (const section of document.querySelectorAll("[data-rows]")) {
  const readout = section.querySelector(".readout");
  const source = section.querySelector("script[type='application/json']");
  if (!readout || !source) continue;
  const data = JSON.parse(source.textContent);
  const packed = Uint8Array.from(atob(data.packed), (letter) => letter.charCodeAt(0));
  const out = readout.querySelector("output");
  const input = readout.querySelector("input");
  let starts = null;
  const bits = (at, count) => {
    let value = 0;
    for (let bit = 0; bit < count; bit++) value |= ((packed[(at + bit) >> 3] >> ((at + bit) & 7)) & 1) << bit;
    return value;
  };
  const list = (at) => {
    const length = bits(at, 3);
    const ids = [];
    for (let i = 0; i < length; i++) ids.push(data.ids[bits(at + 3 + i * data.width, data.width)]);
    return [ids, at + 3 + length * data.width];
  };
  const row = (at) => {
    const [after, changed] = list(at);
    if (!bits(changed, 1)) return [after, after, changed + 1];
    const [before, end] = list(changed + 1);
    return [before, after, end];
  };
  const index = () => {
    starts = new Uint32Array(data.rows);
    for (let r = 0, at = 0; r < data.rows; r++) { starts[r] = at; at = row(at)[2]; }
  };
  const show = (number) => {
    if (!Number.isInteger(number) || number < 0 || number >= data.rows) return;
    if (!starts) index();
    const [before, after] = row(starts[number]);
    const names = (ids) => ids.join(" → ") || "no backend";
    const same = names(before) === names(after);
    out.textContent = same ? `${names(after)} (unchanged)` : `before: ${names(before)}\nafter: ${names(after)}`;
    input.value = number;
  };
  input.addEventListener("input", () => show(input.valueAsNumber));
  for (const picture of section.querySelectorAll("img.rows")) {
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const place = (from, size) => Math.min(255, Math.max(0, Math.floor((from / size) * 256)));
      const x = place(event.clientX - box.left, box.width);
      const y = place(event.clientY - box.top, box.height);
      show(y * 256 + x);
    });
  }
  readout.hidden = false;
}
