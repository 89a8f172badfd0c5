// What of a page is too faint to read: WCAG 2.2, 1.4.3 (text, 4.5 : 1, large text 3 : 1) and 1.4.11 (graphics and the
// edges of controls, 3 : 1). Colours are those that the browser computed.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = "#000";
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => {
    const part = (octet) => { const c = octet / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const canvasColour = () => (matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1]);
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), canvasColour());
  };
  const faded = (colour, opacity) => [...colour.slice(0, 3), colour[3] * Number(opacity)];
  const visible = (element) => {
    const box = element.getBoundingClientRect();
    return element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && box.width > 0 && box.height > 0;
  };
  const name = (element) => `${element.tagName.toLowerCase()}${element.id && "#" + element.id}.${element.getAttribute("class") ?? ""} ${(element.textContent ?? "").trim().slice(0, 30)}`;
  const found = [];
  let checked = 0;
  const demand = (element, what, colour, ground, least) => {
    checked++;
    const ratio = contrast(over(colour, ground), ground);
    if (ratio < least) found.push(`${what} of ${name(element)}: ${ratio.toFixed(2)} : 1, at least ${least} : 1`);
  };
  for (const element of document.querySelectorAll("body *")) {
    if (!visible(element) || element.closest("option, script, style, noscript")) continue;
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    const size = parseFloat(style.fontSize);
    const control = element.matches("input, select, button");
    if ((own || control) && size > 0 && !element.disabled) {
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      demand(element, "text", parse(svg ? style.fill : style.color), behind(svg ? element.closest("svg").parentElement : element), large ? 3 : 4.5);
    }
    if (control || element.matches("i") || (element.matches(".chip") && size === 0)) {
      // The edge of what can be used, or of a patch of colour, against what is around it. One side is enough where
      // controls stand edge to edge in a box of their own.
      const group = style.borderTopWidth === "0px" ? element.parentElement : element;
      demand(element, "edge", parse(getComputedStyle(group).borderTopColor), behind(group.parentElement), 3);
    }
    if (svg && element.matches("rect, line, path, circle, polyline")) {
      const ground = behind(element.closest("svg").parentElement);
      const paints = [[style.fill, style.fillOpacity], [style.stroke, style.strokeOpacity]].filter(([paint]) => paint !== "none");
      const best = paints.map(([paint, opacity]) => faded(parse(paint), opacity)).sort((a, b) => contrast(over(b, ground), ground) - contrast(over(a, ground), ground))[0];
      if (best && !element.matches("[data-decor]")) demand(element, "graphic", best, ground, 3);
    }
  }
  return { found, checked };
})()
