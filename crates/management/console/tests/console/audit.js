const faults = [];
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const light = ([r, g, b]) => { const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
const grounds = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (style.backgroundImage !== 'none') return [...style.backgroundImage.matchAll(/rgba?\([^)]*\)/g)].map((m) => rgb(m[0]));
    const ground = rgb(style.backgroundColor);
    if (ground[3] > 0) return [ground];
  }
  return [[255, 255, 255, 255]];
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.textContent.trim() || !element.checkVisibility() || element.closest('.skip')) continue;
  const text = light(rgb(getComputedStyle(element).color));
  for (const ground of grounds(element)) {
    const other = light(ground);
    const contrast = (Math.max(text, other) + 0.05) / (Math.min(text, other) + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${element.className} "${texts.currentNode.textContent.trim().slice(0, 30)}"`);
  }
}
if (!document.documentElement.lang) faults.push('no language');
if (document.querySelectorAll('h1').length !== 1) faults.push(`${document.querySelectorAll('h1').length} main headings`);
if (!document.querySelector('main')) faults.push('no main landmark');
for (const field of document.querySelectorAll('input:not([type=hidden]), select')) if (!field.labels?.length && !field.ariaLabel) faults.push(`no label: ${field.name}`);
for (const link of document.querySelectorAll('a, button')) if (!link.textContent.trim() && !link.ariaLabel) faults.push(`no name: ${link.outerHTML}`);
// A picture that only decorates says so with an empty text.
for (const picture of document.querySelectorAll('svg, img')) if (!picture.getAttribute('aria-label') && !picture.hasAttribute('alt')) faults.push('a picture without words');
for (const bar of document.querySelectorAll('meter')) if (!bar.labels?.length && !bar.ariaLabel) faults.push('a meter without a name');
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
if (new Set(ids).size !== ids.length) faults.push('an id twice');
if (document.documentElement.scrollWidth > innerWidth + 1) faults.push(`wider than the screen: ${document.documentElement.scrollWidth} > ${innerWidth}`);
return [...new Set(faults)];
