"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const element = (tag, properties, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// The real hash, as in the command line: FNV-1a over UTF-8, then the splitmix64 finaliser.
const U64 = (1n << 64n) - 1n;
const mix = (z) => {
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & U64;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & U64;
  return z ^ (z >> 31n);
};
const cache = new Map();
const hashText = (text) => {
  if (!cache.has(text)) {
    let hash = 0xcbf29ce484222325n;
    for (const octet of new TextEncoder().encode(text)) hash = ((hash ^ BigInt(octet)) * 0x100000001b3n) & U64;
    cache.set(text, mix(hash));
  }
  return cache.get(text);
};
const hex = (value) => value.toString(16).padStart(16, "0").slice(0, 6) + "…";
const unit = (score) => (Number(score >> 11n) + 0.5) / 2 ** 53;

const toy = {
  keys: () => Array.from({ length: data.toyKeys[1] - data.toyKeys[0] }, (_, i) => String(data.toyKeys[0] + i)),
  place: (key) => (37 * Number(key) + 11) % 100,
  tokens: (node, count) => Array.from({ length: count }, (_, v) => (node.token + 17 * v) % 100),
  score: (at, node) => (at * node.token + 9 * at + 7 * node.token) % 97,
  unit: (score) => (score + 0.5) / 97,
  mod: (at, count) => at % count,
  show: String,
  placing: (key, at) => `position of ${key}: (37 · ${key} + 11) mod 100 = ${at}`,
  scoring: (at, node, score) => `${node.id}: (${at} · ${node.token} + 9 · ${at} + 7 · ${node.token}) mod 97 = ${score}`,
  valid: (key) => /^\d{1,6}$/.test(key),
};
const real = {
  keys: (count) => Array.from({ length: count }, (_, i) => `key-${i}`),
  place: hashText,
  tokens: (node, count) => Array.from({ length: count }, (_, v) => hashText(`${node.id}#${v}`)),
  score: (at, node) => mix(at ^ hashText(node.id)),
  unit,
  mod: (at, count) => Number(at % BigInt(count)),
  show: hex,
  placing: (key, at) => `hash of ${key}: ${hex(at)}`,
  scoring: (at, node, score) => `${node.id}: mix(${hex(at)} xor ${hex(hashText(node.id))}) = ${hex(score)}`,
  valid: (key) => key.length > 0,
};

const less = (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] < b[1] ? -1 : 1);
const ringOf = (state) => state.nodes.flatMap((node) => {
  const count = Math.max(1, Math.round(node.weight * state.tokens));
  return state.hash.tokens(node, count).map((token) => [token, node.id]);
}).sort(less);
const weighted = (state, at, node) => -node.weight / Math.log(state.hash.unit(state.hash.score(at, node)));

const sides = [
  {
    name: "mod-N",
    prepare: () => null,
    owner: (state, at) => state.nodes[state.hash.mod(at, state.nodes.length)].id,
    steps(state, key, at) {
      const rest = state.hash.mod(at, state.nodes.length);
      const order = state.nodes.map((node, i) => `${i} ${node.id}`).join(", ");
      return [state.hash.placing(key, at), `${state.hash.show(at)} mod ${state.nodes.length} nodes = ${rest}`, `nodes by number: ${order}`];
    },
  },
  {
    name: "ring",
    prepare: ringOf,
    owner(state, at, ring) {
      let low = 0, high = ring.length;
      while (low < high) { const middle = (low + high) >> 1; if (ring[middle][0] < at) low = middle + 1; else high = middle; }
      return ring[low % ring.length][1];
    },
    steps(state, key, at, ring) {
      const next = ring.find(([token]) => token >= at);
      const tokens = ring.length > 16 ? `${ring.length} tokens` : `tokens: ${ring.map(([token, id]) => `${state.hash.show(token)} ${id}`).join(", ")}`;
      const found = next ? `the first at or after ${state.hash.show(at)} is ${state.hash.show(next[0])}` : `none after ${state.hash.show(at)}: around to ${state.hash.show(ring[0][0])}`;
      return [state.hash.placing(key, at), tokens, found];
    },
  },
  {
    name: "rendezvous",
    prepare: () => null,
    owner(state, at) {
      const alike = state.nodes.every((node) => node.weight === state.nodes[0].weight);
      const value = alike ? (node) => state.hash.score(at, node) : (node) => weighted(state, at, node);
      let best = state.nodes[0], most = value(best);
      for (const node of state.nodes.slice(1)) { const one = value(node); if (one > most) { best = node; most = one; } }
      return best.id;
    },
    steps(state, key, at) {
      const alike = state.nodes.every((node) => node.weight === state.nodes[0].weight);
      const lines = state.nodes.slice(0, 12).map((node) => {
        const line = state.hash.scoring(at, node, state.hash.score(at, node));
        return alike ? line : `${line}; −${node.weight} / ln u = ${weighted(state, at, node).toFixed(3)}`;
      });
      return [state.hash.placing(key, at), ...lines, "the greatest wins"];
    },
  },
];

const hue = (id) => {
  const at = state.known.indexOf(id);
  return `hsl(${(at * 137.508 + 205) % 360} 62% ${[72, 64, 80][at % 3]}%)`;
};

let state, start;
const begin = (useToy) => {
  const nodes = useToy
    ? data.toyNodes.slice(0, 3).map((node) => ({ ...node, weight: 1 }))
    : (data.nodes.length ? data.nodes : ["A", "B", "C"].map((id) => ({ id, weight: 1 }))).map((node) => ({ ...node }));
  const counts = useToy ? [24] : [...new Set([24, 240, 1000, data.keys])].sort((a, b) => a - b);
  const count = useToy ? 24 : data.toy ? 240 : data.keys;
  state = { hash: useToy ? toy : real, nodes, tokens: 1, count, known: nodes.map((node) => node.id), spare: useToy ? data.toyNodes[3] : null };
  state.keys = state.hash.keys(state.count);
  $("hash").value = useToy ? "toy" : "real";
  $("count").replaceChildren(...counts.map((one) => element("option", { textContent: one, selected: one === state.count })));
  $("tokens").value = "1";
  $("key").value = useToy ? "43" : "key-0";
  last = null;
  found = null;
  draw(place(state), null);
  say("");
};
let last = null, found = null;
const say = (text) => { $("status").textContent = text; };
const place = (of) => sides.map((side) => {
  const ring = side.prepare(of);
  return of.keys.map((key) => side.owner(of, of.hash.place(key), ring));
});
const changed = (nodes, tokens = state.tokens) => ({ ...state, nodes, tokens });
const moved = (before, after) => before.map((owners, side) => owners.map((owner, at) => owner !== after[side][at]));

// What a change would do, marked on the chips; and the change itself.
const preview = (next, words) => {
  const marks = moved(place(state), place(next));
  document.querySelectorAll(".keys").forEach((box, side) => box.childNodes.forEach((chip, at) => chip.classList.toggle("will-move", marks[side][at])));
  say(`${words} would move: ${sides.map((side, at) => `${side.name} ${marks[at].filter(Boolean).length}`).join(", ")} of ${state.keys.length}`);
};
const unmark = () => { document.querySelectorAll(".will-move").forEach((chip) => chip.classList.remove("will-move")); say(""); };
const commit = (next, words) => {
  const before = place(state), old = state.nodes;
  const after = place(next);
  const weight = (nodes, id) => nodes.find((node) => node.id === id)?.weight ?? 0;
  const lost = (id) => weight(next.nodes, id) < weight(old, id), gained = (id) => weight(next.nodes, id) > weight(old, id);
  last = before.map((owners, side) => {
    const gone = owners.map((owner, at) => [owner, after[side][at]]).filter(([from, to]) => from !== to);
    return [gone.length, gone.filter(([from, to]) => !lost(from) && !gained(to)).length];
  });
  state = next;
  next.nodes.forEach((node) => { if (!state.known.includes(node.id)) state.known.push(node.id); });
  draw(after, moved(before, after));
  say(words);
};
const action = (button, make, words) => {
  const next = () => changed(...make());
  button.addEventListener("pointerenter", () => preview(next(), words));
  button.addEventListener("focus", () => preview(next(), words));
  button.addEventListener("pointerleave", unmark);
  button.addEventListener("blur", unmark);
  button.addEventListener("click", () => { commit(next(), `${words}: done`); });
  return button;
};
const newcomer = () => {
  if (state.spare && !state.nodes.some((node) => node.id === state.spare.id)) return { ...state.spare, weight: 1 };
  if (state.hash === toy) return data.toyNodes.map((node) => ({ ...node, weight: 1 })).find((node) => !state.nodes.some((one) => one.id === node.id));
  const gone = state.known.find((id) => !state.nodes.some((node) => node.id === id));
  if (gone) return { id: gone, weight: 1 };
  let number = state.nodes.length + 1;
  while (state.known.includes(`node-${number}`)) number++;
  const letter = String.fromCharCode(65 + state.known.length);
  return { id: data.toy && state.known.length < 26 ? letter : `node-${number}`, weight: 1 };
};
const drawNodes = () => {
  const boxes = state.nodes.map((node) => {
    const name = element("span", { className: "name", textContent: node.id });
    name.style.background = hue(node.id);
    const remove = element("button", { type: "button", textContent: "remove", disabled: state.nodes.length === 1 });
    remove.dataset.remove = node.id;
    remove.setAttribute("aria-label", `remove ${node.id}`);
    action(remove, () => [state.nodes.filter((one) => one.id !== node.id)], `removing ${node.id}`);
    const weight = element("input", { type: "number", min: 0.25, max: 16, step: 0.25, value: node.weight });
    weight.setAttribute("aria-label", `weight of ${node.id}`);
    weight.dataset.weight = node.id;
    weight.addEventListener("change", () => {
      const value = Math.min(16, Math.max(0.25, Number(weight.value) || 1));
      commit(changed(state.nodes.map((one) => (one.id === node.id ? { ...one, weight: value } : one))), `weight of ${node.id} is ${value}`);
    });
    return element("span", { className: "node" }, name, weight, remove);
  });
  const one = newcomer();
  if (one) {
    const add = element("button", { type: "button", textContent: `add ${one.id}`, id: "add" });
    boxes.push(action(add, () => [[...state.nodes, one]], `adding ${one.id}`));
  }
  $("nodes").replaceChildren(...boxes);
};
const svg = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
};
const drawRing = () => {
  const picture = svg("svg", { viewBox: "-45 0 290 200", class: "ring", role: "img", "aria-label": "The ring with its tokens" });
  const all = state.hash === toy ? 100 : 2 ** 64;
  const ring = ringOf(state), turn = (token) => (Number(token) / all) * 2 * Math.PI - Math.PI / 2;
  const point = (angle, radius) => `${(100 + radius * Math.cos(angle)).toFixed(2)} ${(100 + radius * Math.sin(angle)).toFixed(2)}`;
  ring.forEach(([token, id], at) => {
    const from = turn(ring[(at + ring.length - 1) % ring.length][0]), to = turn(token);
    const sweep = (to - from + 2 * Math.PI) % (2 * Math.PI) || 2 * Math.PI - 1e-4;
    const large = sweep > Math.PI ? 1 : 0, end = from + sweep;
    const path = `M${point(from, 80)}A80 80 0 ${large} 1 ${point(end, 80)}L${point(end, 64)}A64 64 0 ${large} 0 ${point(from, 64)}Z`;
    picture.append(svg("path", { d: path, fill: hue(id) }));
  });
  if (ring.length <= 20) ring.forEach(([token, id]) => {
    const [x, y] = point(turn(token), 91).split(" ");
    picture.append(svg("text", { x, y }, state.hash === toy ? `${id} ${token}` : id.slice(0, 8)));
  });
  return picture;
};
// The buttons are made anew: whoever works by keyboard goes on where they were, or at the next node if that one left.
const keepFocus = (change) => {
  const one = document.activeElement, at = [...document.querySelectorAll("[data-remove]")].indexOf(one);
  const same = one.dataset.remove ? `[data-remove="${CSS.escape(one.dataset.remove)}"]` : one.dataset.weight ? `[data-weight="${CSS.escape(one.dataset.weight)}"]` : one.id && `#${one.id}`;
  change();
  if (one.isConnected || !same) return;
  const removes = [...document.querySelectorAll("[data-remove]:not(:disabled)")];
  (document.querySelector(`${same}:not(:disabled)`) ?? removes[Math.min(at, removes.length - 1)] ?? $("add") ?? $("reset")).focus();
};
const draw = (owners, marks) => {
  keepFocus(drawNodes);
  const many = state.keys.length > 60;
  $("sides").replaceChildren(...sides.map((side, at) => {
    const chips = state.keys.map((key, i) => {
      const chip = element("span", { className: "chip", textContent: key, title: `${key}: ${owners[at][i]}` });
      chip.style.background = hue(owners[at][i]);
      if (marks?.[at][i]) chip.classList.add("moved");
      if (key === found) chip.classList.add("found");
      return chip;
    });
    const counts = state.nodes.map((node) => owners[at].filter((owner) => owner === node.id).length);
    const sum = state.nodes.reduce((all, node) => all + node.weight, 0);
    const loads = state.nodes.map((node, i) => counts[i] / ((state.keys.length * node.weight) / sum));
    let top = 0;
    loads.forEach((load, i) => { if (load > loads[top]) top = i; });
    const [gone, idle] = last ? last[at] : [0, 0];
    const lines = [
      `keys per node: ${state.nodes.map((node, i) => `${node.id} ${counts[i]}`).join(", ")}`,
      `busiest: ${state.nodes[top].id}, ${loads[top].toFixed(2)} × its fair share`,
      `moved by the last change: ${gone} of ${state.keys.length}, ${idle} unnecessarily`,
    ].map((text) => element("li", { textContent: text }));
    const box = element("div", { className: "keys" }, ...chips);
    const section = element("section", { className: many ? "side many" : "side" }, element("h2", { textContent: side.name }), box, element("ul", { className: "lines" }, ...lines));
    section.dataset.side = side.name;
    if (side.name === "ring") box.before(drawRing());
    section.append(element("ol", { className: "steps" }, ...steps(side, at)));
    return section;
  }));
};
const steps = (side) => {
  if (!found) return [element("li", { textContent: "look up a key to see how it finds its node" })];
  const at = state.hash.place(found), ring = side.prepare(state);
  const lines = [...side.steps(state, found, at, ring), `so ${found} belongs to ${side.owner(state, at, ring)}`];
  return lines.map((text) => element("li", { textContent: text }));
};
$("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (!state.hash.valid(key)) { say("a key is a number here"); return; }
  found = key;
  draw(place(state), null);
  say(`looked up ${key}`);
});
$("tokens").addEventListener("change", () => commit(changed(state.nodes, Number($("tokens").value)), `${$("tokens").value} virtual nodes per node`));
$("hash").addEventListener("change", () => begin($("hash").value === "toy"));
$("count").addEventListener("change", () => { state.count = Number($("count").value); state.keys = state.hash.keys(state.count); last = null; draw(place(state), null); });
$("reset").addEventListener("click", () => begin($("hash").value === "toy"));
begin(data.toy);
