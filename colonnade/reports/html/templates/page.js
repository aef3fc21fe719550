"use strict";
const wire = (root) => {
  for (const axis of root.querySelectorAll("fieldset.axis")) {
    axis.hidden = false;
    axis.addEventListener("change", (event) => {
      for (const picture of root.querySelectorAll("[data-axis]"))
        picture.hidden = picture.dataset.axis !== event.target.value;
    });
  }
  for (const picture of root.querySelectorAll("svg.curves")) {
    let said = picture.parentElement.querySelector(":scope > .said"); // values under the pointer
    if (!said) {
      said = document.createElement("p");
      said.className = "said";
      said.ariaHidden = "true";
      picture.after(said);
    }
    const curves = [...picture.querySelectorAll("polyline[data-x]")].map((line) => ({
      name: line.querySelector("title").textContent,
      places: line.getAttribute("points").split(" ").map((point) => parseFloat(point)),
      x: line.dataset.x.split(";"),
      y: line.dataset.y.split(";"),
    }));
    const read = (event) => {
      const box = picture.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width;
      const near = [];
      for (const curve of curves) {
        let best = 0;
        curve.places.forEach((place, i) => {
          if (Math.abs(place - at) < Math.abs(curve.places[best] - at)) best = i;
        });
        if (Math.abs(curve.places[best] - at) < 25) near.push(`${curve.name} ${curve.y[best]} (${curve.x[best]})`);
      }
      said.textContent = near.join(", ");
    };
    picture.addEventListener("pointermove", read);
    picture.addEventListener("pointerdown", read);
    picture.addEventListener("pointerleave", () => { said.textContent = ""; });
  }
};
wire(document);
