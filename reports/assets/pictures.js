// Saving each chart as a picture, with title, versions and its colours on the screen.
const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "paint-order", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];
const OWN_SVG = "svg[viewBox]:not(.swatch)";
const ABOVE = 30; // px for the title

function pictureOf(figure) {
  const seen = $$(OWN_SVG, figure).find((svg) => svg.getClientRects().length), copy = seen.cloneNode(true);
  const [, , width, height] = seen.getAttribute("viewBox").split(" ").map(Number), from = [seen, ...$$("*", seen)];
  [copy, ...$$("*", copy)].forEach((node, i) => {
    const style = getComputedStyle(from[i]);
    for (const key of DRAWN) node.style.setProperty(key, style.getPropertyValue(key));
  });
  const body = getComputedStyle(document.body), make = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text) node.textContent = text;
    return node;
  };
  const title = $("figcaption", figure).textContent.replace(/\s+/g, " ").trim() + " · " + PAGE.about;
  copy.prepend(
    make("rect", { x: 0, y: -ABOVE, width, height: height + ABOVE, fill: body.backgroundColor }),
    make("text", { x: 8, y: -10, fill: body.color, "font-size": 13, "font-family": body.fontFamily }, title),
  );
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", viewBox: `0 ${-ABOVE} ${width} ${height + ABOVE}`, width, height: height + ABOVE })) copy.setAttribute(key, value);
  return { text: new XMLSerializer().serializeToString(copy), width, height: height + ABOVE };
}

function saveOwn(figure, format, name) {
  const picture = pictureOf(figure);
  if (format === "svg") return save(new Blob([picture.text], { type: "image/svg+xml" }), name + ".svg");
  const image = new Image(), canvas = Object.assign(document.createElement("canvas"), { width: 2 * picture.width, height: 2 * picture.height });
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name + ".png"), "image/png");
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(picture.text);
}

$$("main figure").filter((figure) => $("figcaption", figure) && $(".chart, " + OWN_SVG, figure)).forEach((figure) => {
  const row = Object.assign(document.createElement("p"), { className: "buttons" }), box = $(".chart", figure);
  for (const format of ["svg", "png"]) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Save as " + format.toUpperCase() });
    button.addEventListener("click", () => (box ? saveTimeline : saveOwn)(box || figure, format, "dbbench-" + (box || $("figcaption", figure)).id));
    row.append(button);
  }
  figure.append(row);
});
