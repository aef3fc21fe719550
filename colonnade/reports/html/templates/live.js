// Updates only the changed parts of the page; the reader's open sections, choices, scroll position and focus stay.
const main = document.querySelector("main");
const sent = new Map();
const named = (e) => e.localName + (e.getAttribute("aria-label") || e.value || e.textContent.slice(0, 99));
const within = (part, what) => [...part.querySelectorAll(what)];
const keep = (part) => ({
  open: new Set(within(part, "details[open] > summary").map(named)),
  axis: part.querySelector("fieldset.axis input:checked")?.value,
  scrolled: new Map(within(part, "[tabindex]").map((e) => [named(e).slice(0, 40), [e.scrollLeft, e.scrollTop]])),
  focus: part.contains(document.activeElement) ? named(document.activeElement) : null,
});
const give = (part, kept) => {
  for (const summary of within(part, "details > summary")) summary.parentElement.open = kept.open.has(named(summary));
  const axis = within(part, "fieldset.axis input").find((e) => e.value === kept.axis);
  if (axis) {
    axis.checked = true;
    axis.dispatchEvent(new Event("change", { bubbles: true }));
  }
  for (const e of within(part, "[tabindex]")) {
    const [left, top] = kept.scrolled.get(named(e).slice(0, 40)) || [0, 0];
    e.scrollLeft = left;
    e.scrollTop = top;
  }
  if (kept.focus)
    within(part, "a, input, summary, [tabindex]").find((e) => named(e) === kept.focus)?.focus({ preventScroll: true });
};
const take = (fresh) => {
  const anchor = [...main.children].find((e) => e.getBoundingClientRect().bottom > 0);
  const top = anchor?.getBoundingClientRect().top;
  const place = anchor?.id;
  let last = main.querySelector("h1");
  last.textContent = fresh.querySelector("h1").textContent;
  const parts = [...fresh.children].filter((e) => e.id);
  const ids = new Set(parts.map((e) => e.id));
  for (const part of parts) {
    const html = part.outerHTML;
    const old = document.getElementById(part.id);
    if (!old) {
      last.after(part);
      wire(part);
    } else if (sent.get(part.id) !== html) {
      const kept = keep(old);
      old.replaceWith(part);
      wire(part);
      give(part, kept);
    }
    sent.set(part.id, html);
    last = document.getElementById(part.id);
  }
  for (const part of [...main.children]) if (part.id && !ids.has(part.id)) part.remove();
  const now = place && document.getElementById(place);
  if (now && window.scrollY > 0) window.scrollBy(0, now.getBoundingClientRect().top - top);
  main.dataset.again = fresh.dataset.again;
};
const bar = document.createElement("p");
bar.className = "live";
bar.innerHTML = '<span role="status"></span> <button type="button" aria-pressed="false">Pause</button>';
const [status, pause] = bar.children;
const say = (words) => { if (status.textContent !== words) status.textContent = words; };
const over = (words) => {
  say(words);
  pause.remove();
};
const paused = () => pause.getAttribute("aria-pressed") === "true";
const tell = () => say(paused() ? "Paused." : "This page follows the run.");
let failed = 0;
const ask = async () => {
  if (!paused())
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const text = await answer.text();
      failed = 0;
      if (!paused()) take(new DOMParser().parseFromString(text, "text/html").querySelector("main"));
    } catch {
      failed += 1;
    }
  tell();
  if (main.dataset.again === "0") over("The run has ended: this is its last state.");
  else if (failed > 3) over("Nobody answers any more: the run has ended or was stopped. Its folder has the rest.");
  else setTimeout(ask, 1000 * main.dataset.again);
};
pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", !paused());
  tell();
});
document.body.append(bar);
if (main.dataset.again === "0") over("The run has ended: this is its last state.");
else {
  tell();
  setTimeout(ask, 1000 * main.dataset.again);
}
