"use strict";
// Tests the script of the flame graphs in an engine without a page: `node flame_test.js`. What fails is an error; at
// the end it says that all is well.
const assert = require("node:assert");
const { zoomed, found, next } = require("./flame.js");

const frame = (name, depth, left, width) => ({ name, depth, left, width });
const frames = [
  frame("all", 0, 0, 1),
  frame("main", 1, 0, 0.75),
  frame("thread", 1, 0.75, 0.25),
  frame("parse", 2, 0, 0.5),
  frame("Malloc", 2, 0.5, 0.25),
  frame("malloc_inner", 3, 0.5, 0.25),
  frame("malloc", 2, 0.75, 0.125),
];
const names = (places) => frames.filter((_, at) => places[at]).map((it) => it.name);

// The whole graph shows everything where it is.
const whole = zoomed(frames, 0);
assert.deepStrictEqual(whole, frames.map(({ left, width }) => ({ left, width })));
// A zoom shows callers as wide as the graph, what is called within, and nothing else.
const main = zoomed(frames, 1);
assert.deepStrictEqual(names(main), ["all", "main", "parse", "Malloc", "malloc_inner"]);
assert.deepStrictEqual(main[0], { left: 0, width: 1 });
assert.ok(Math.abs(main[4].left - 2 / 3) < 1e-9 && Math.abs(main[4].width - 1 / 3) < 1e-9);
assert.deepStrictEqual(names(zoomed(frames, 5)), ["all", "main", "Malloc", "malloc_inner"]);

// A search ignores case, and time within a frame that was found counts once.
const hits = found(frames, " MALLOC ");
assert.deepStrictEqual([...hits.hits], [4, 5, 6]);
assert.strictEqual(hits.share, 0.375);
assert.deepStrictEqual([found(frames, "").hits.size, found(frames, "zzz").share], [0, 0]);

// Keys walk: up to the widest, down to the caller, to both sides on a level; never to what is not shown.
const walk = (places, from, ...keys) => frames[keys.reduce((at, key) => next(frames, places, at, key), from)].name;
assert.strictEqual(walk(whole, 0, "ArrowUp", "ArrowUp"), "parse");
assert.strictEqual(walk(whole, 3, "ArrowRight", "ArrowRight"), "malloc");
assert.strictEqual(walk(whole, 6, "ArrowLeft", "ArrowUp", "ArrowDown", "ArrowDown"), "main");
assert.strictEqual(walk(main, 4, "ArrowRight"), "Malloc");
assert.strictEqual(walk(whole, 0, "ArrowDown"), "all");
assert.strictEqual(walk(whole, 0, "PageUp"), "all");
console.log("all is well");
