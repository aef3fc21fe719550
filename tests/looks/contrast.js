// The lowest contrast of a text of the page to its background, as WCAG 2 defines it;
// a canvas lays semi-transparent colours over those below.
(() => {
  const draw = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (...layers) => {
    for (const layer of layers) { draw.fillStyle = layer; draw.fillRect(0, 0, 1, 1); }
    return [...draw.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255);
  };
  const light = (layers) => rgb(...layers).map((v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const below = (e) => (e ? [...below(e.parentElement), getComputedStyle(e).backgroundColor] : []);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = [99, ""];
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const e = node.parentElement, drawn = e.closest("svg");
    if (!node.data.trim() || !e.getClientRects().length || e.closest("script, title, desc")) continue;
    const a = light([...below(e), getComputedStyle(e)[drawn ? "fill" : "color"]]), b = light(below(e));
    worst = [[(Math.max(a, b) + .05) / (Math.min(a, b) + .05), node.data], worst].sort((x, y) => x[0] - y[0])[0];
  }
  return worst;
})()
