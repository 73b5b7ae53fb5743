"use strict";
// Search, zoom and keyboard for the flame graphs of a page. The first half knows no page: a test runs it.
(function () {
  // Frames have `left` and `width` as parts of the whole, from 0 to 1, `depth` from 0 for the root, and a `name`.
  const NEAR = 1e-6;
  const holds = (outer, inner) =>
    outer.left <= inner.left + NEAR && outer.left + outer.width >= inner.left + inner.width - NEAR;

  // Returns where each frame is when the frame `at` takes the whole width: its callers as wide, what it calls within,
  // and null for the others.
  function zoomed(frames, at) {
    const whole = frames[at];
    return frames.map((frame) => {
      if (frame.depth <= whole.depth) return holds(frame, whole) ? { left: 0, width: 1 } : null;
      if (!holds(whole, frame)) return null;
      return { left: (frame.left - whole.left) / whole.width, width: frame.width / whole.width };
    });
  }

  // Returns which frames have the text in their names, and the part of the whole that they take together: a frame
  // within another one counts once.
  function found(frames, text) {
    const wanted = text.trim().toLowerCase();
    const hits = new Set();
    if (wanted) frames.forEach((frame, at) => frame.name.toLowerCase().includes(wanted) && hits.add(at));
    let share = 0;
    for (const at of hits) {
      const frame = frames[at];
      const inside = [...hits].some((other) => frames[other].depth < frame.depth && holds(frames[other], frame));
      if (!inside) share += frame.width;
    }
    return { hits, share };
  }

  // Returns the frame to which a key leads from the frame `at`, of those that `places` shows: ArrowUp to the widest
  // that it calls, ArrowDown to its caller, ArrowLeft and ArrowRight to its neighbours. Without one, the same frame.
  function next(frames, places, at, key) {
    const here = frames[at];
    const shown = frames.map((frame, other) => [frame, other]).filter(([, other]) => places[other]);
    const pick = (wanted, better) =>
      shown
        .filter(([frame]) => wanted(frame))
        .reduce((best, one) => (!best || better(one[0], best[0]) ? one : best), null);
    const chosen = {
      ArrowUp: () => pick((it) => it.depth === here.depth + 1 && holds(here, it), (a, b) => a.width > b.width),
      ArrowDown: () => pick((it) => it.depth === here.depth - 1 && holds(it, here), () => false),
      ArrowLeft: () => pick((it) => it.depth === here.depth && it.left < here.left - NEAR, (a, b) => a.left > b.left),
      ArrowRight: () => pick((it) => it.depth === here.depth && it.left > here.left + NEAR, (a, b) => a.left < b.left),
    }[key];
    const one = chosen && chosen();
    return one ? one[1] : at;
  }

  if (typeof document === "undefined") {
    module.exports = { zoomed, found, next };
    return;
  }

  // The narrowest frame that has a name on it, in pixels.
  const NAMED = 22;

  function element(name, texts) {
    return Object.assign(document.createElement(name), texts);
  }

  function start(graph) {
    const nodes = [...graph.querySelectorAll("svg")];
    if (!nodes.length) return;
    const frames = nodes.map((node) => ({
      left: parseFloat(node.getAttribute("x")) / 100,
      width: parseFloat(node.getAttribute("width")) / 100,
      depth: Number(node.dataset.depth),
      name: node.dataset.name,
    }));
    const titles = nodes.map((node) => node.querySelector("title").textContent);
    let zoom = 0;
    let places = zoomed(frames, zoom);

    const tools = element("div", { className: "tools" });
    const search = element("input", { type: "search", placeholder: "Search functions" });
    search.setAttribute("aria-label", "Search functions in the flame graph below");
    const back = element("button", { type: "button", textContent: "Whole graph", disabled: true });
    const line = element("output", { className: "line", textContent: "Click a frame, or walk with the arrow keys" });
    line.setAttribute("aria-live", "polite");
    tools.append(search, back);
    graph.before(tools, line);
    graph.setAttribute("role", "group");

    function draw() {
      const room = graph.clientWidth || 1200;
      nodes.forEach((node, at) => {
        const place = places[at];
        node.style.display = place ? "" : "none";
        if (!place) return;
        node.setAttribute("x", 100 * place.left + "%");
        node.setAttribute("width", 100 * place.width + "%");
        node.classList.toggle("caller", frames[at].depth < frames[zoom].depth);
        let text = node.querySelector("text");
        const named = place.width * room >= NAMED;
        if (named && !text) {
          text = document.createElementNS(node.namespaceURI, "text");
          text.setAttribute("x", "3");
          text.setAttribute("y", "12");
          text.textContent = frames[at].name;
          node.append(text);
        } else if (!named && text) {
          text.remove();
        }
      });
      back.disabled = zoom === 0;
    }

    function zoomTo(at) {
      zoom = at;
      places = zoomed(frames, zoom);
      draw();
      line.textContent = titles[at];
    }

    function focus(at) {
      nodes.forEach((node, other) => node.setAttribute("tabindex", other === at ? "0" : "-1"));
      nodes[at].focus({ preventScroll: false });
    }

    search.addEventListener("input", () => {
      const { hits, share } = found(frames, search.value);
      nodes.forEach((node, at) => node.classList.toggle("hit", hits.has(at)));
      graph.classList.toggle("searched", search.value.trim() !== "");
      line.textContent = search.value.trim()
        ? `${hits.size} frames, ${(100 * share).toFixed(1)} % of the ${graph.dataset.whole}`
        : titles[zoom];
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && search.value) {
        search.value = "";
        search.dispatchEvent(new Event("input"));
      }
    });
    back.addEventListener("click", () => zoomTo(0));
    nodes.forEach((node, at) => {
      node.setAttribute("tabindex", at === 0 ? "0" : "-1");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", titles[at]);
      node.addEventListener("click", () => {
        zoomTo(at);
        focus(at);
      });
      node.addEventListener("mouseenter", () => (line.textContent = titles[at]));
      node.addEventListener("focus", () => (line.textContent = titles[at]));
      node.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        if (event.key === "Enter" || event.key === " ") zoomTo(at);
        else if (event.key === "Escape") zoomTo(0);
        else if (event.key === "/") search.focus();
        else if (event.key.startsWith("Arrow")) focus(next(frames, places, at, event.key));
        else return;
        event.preventDefault();
      });
    });
    addEventListener("resize", draw);
    draw();
  }

  document.querySelectorAll("svg.flame").forEach(start);
})();
