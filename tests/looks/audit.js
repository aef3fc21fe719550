// Faults of the page as it is shown, one a line: what is cut, what lies on something else, what a reader by ear misses.
(() => {
  const faults = [];
  const root = document.querySelector("article") ?? document; // of the site, whose frame comes with its theme
  const view = document.documentElement.clientWidth;
  const words = (e) => (e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  const where = (e) => `${e.localName}${e.className && e.className.baseVal === undefined ? "." + e.className : ""}`;
  const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
  const hidden = (e) => e.closest("details:not([open]) > :not(summary)") || getComputedStyle(e).clipPath !== "none";

  if (document.documentElement.scrollWidth > view + 1) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const e of (root.querySelector("main") ?? root).querySelectorAll("*:not(svg *)")) {
    if (!shown(e) || hidden(e) || e.closest("thead")?.offsetHeight <= 1 || e.closest(".md-typeset__scrollwrap:has(th:nth-child(5))")) continue;
    const box = e.getBoundingClientRect();
    if (box.right > view + 1 || box.left < -1) faults.push(`${where(e)} leaves the page: ${words(e)}`);
    const style = getComputedStyle(e);
    if (style.display !== "inline" && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && e.localName !== "svg")
      faults.push(`${where(e)} is cut (${e.scrollWidth} of ${e.clientWidth}): ${words(e)}`);
  }
  for (const picture of root.querySelectorAll("svg")) {
    if (!shown(picture) || hidden(picture)) continue;
    const outer = picture.getBoundingClientRect();
    const open = getComputedStyle(picture).overflow === "visible";
    const texts = [...picture.querySelectorAll("text")].filter(shown)
      .map((e) => ({ e, box: e.getBoundingClientRect(), turned: e.hasAttribute("transform") }));
    for (const { e, box } of texts) {
      const out = open ? box.right > view + 1 || box.left < -1
        : box.left < outer.left - 1 || box.right > outer.right + 1 || box.top < outer.top - 2 || box.bottom > outer.bottom + 2;
      if (out) faults.push(`text is cut in a picture: ${words(e)}`);
      const size = parseFloat(getComputedStyle(e).fontSize) * (picture.viewBox.baseVal?.width ? outer.width / picture.viewBox.baseVal.width : 1);
      if (size < 7 && !picture.matches(".heat")) faults.push(`text of ${size.toFixed(1)} pixels in a picture: ${words(e)}`);
    }
    texts.forEach((one, at) => texts.slice(at + 1).forEach((other) => {
      if (one.turned || other.turned) return;
      const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (across > 2 && down > 4) faults.push(`texts lie on each other: ${words(one.e)} / ${words(other.e)}`);
    }));
    if (picture.getAttribute("role") === "img" && !picture.querySelector("title")?.textContent)
      faults.push("a picture has no title");
    if (picture.getAttribute("role") !== "img" && picture.getAttribute("aria-hidden") !== "true")
      faults.push("a picture is neither named nor hidden from a reader by ear");
  }
  let level = 0;
  const headings = [...root.querySelectorAll("h1, h2, h3, h4")];
  for (const heading of headings) {
    const own = Number(heading.localName[1]);
    if (own > level + 1) faults.push(`${where(heading)} after h${level}: ${words(heading)}`);
    if (!words(heading)) faults.push(`${where(heading)} is empty`);
    level = own;
  }
  if (headings.filter((e) => e.localName === "h1").length !== 1) faults.push("there is not one h1");
  for (const table of root.querySelectorAll("table"))
    if (!table.matches(".facts") && !table.querySelector("caption")) faults.push(`a table has no caption: ${words(table)}`);
  for (const cell of root.querySelectorAll("th"))
    if (!cell.hasAttribute("scope")) faults.push(`a th has no scope: ${words(cell)}`);
  for (const field of root.querySelectorAll("input, button, a"))
    if (!words(field) && !field.labels?.length && !field.ariaLabel && !field.title) faults.push(`${where(field)} has no name`);
  for (const link of root.querySelectorAll("a[href^='#']"))
    if (!document.getElementById(link.getAttribute("href").slice(1))) faults.push(`${link.getAttribute("href")} leads nowhere`);
  const ids = [...root.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push(`#${id} twice`);
  return faults;
})()
