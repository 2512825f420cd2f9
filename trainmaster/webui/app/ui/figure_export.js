/** Files for a paper of what is drawn on a canvas: the same drawing as a vector graphic, and its values. */
import { csv, json } from "../lib/files.js";
import { paperWidth, SvgPen } from "../lib/svg_pen.js";
import { colours, FONT } from "./canvas.js";
import { saveFile, savePng } from "./download.js";
import { toastError } from "./overlay.js";

/** @import { Cell } from "../lib/files.js" */
/** @import { Draw } from "./canvas.js" */

/**
 * @typedef {object} Figure
 * @property {string} title
 * @property {Draw} draw
 * @property {number} height pixels
 * @property {string[]} columns of the columns of its values
 * @property {() => Cell[][]} rows
 */

/** What a menu offers to save of a figure. @param {Figure} figure */
export function figureExportItems(figure) {
    const { title, columns, rows } = figure;
    const name = title.replace(/[^\w.-]+/g, "-").slice(0, 60) || "figure";
    /** @param {number} millimetres */
    const saveSvg = millimetres => () => saveFile(`${name}.svg`, svgOfFigure(figure, millimetres), "image/svg+xml");
    return [
        {
            text: "PNG",
            hint: "twice the size",
            action: () => savePng(svgOfFigure(figure, 170), `${name}.png`).catch(toastError),
        },
        { text: "SVG, one column", hint: "85 mm", action: saveSvg(85) },
        { text: "SVG, two columns", hint: "170 mm", action: saveSvg(170) },
        { text: "CSV", hint: "its values", action: () => saveFile(`${name}.csv`, csv(columns, rows()), "text/csv") },
        {
            text: "JSON",
            hint: "its values",
            action: () => saveFile(`${name}.json`, json(columns, rows()), "application/json"),
        },
    ];
}

/** @param {Figure} figure @param {number} millimetres */
function svgOfFigure({ title, draw, height, columns, rows }, millimetres) {
    const width = paperWidth(millimetres);
    const pen = new SvgPen(width, height);
    pen.font = FONT;
    const white = document.createElement("span"); // paper is light, whatever the screen's theme
    white.style.colorScheme = "light";
    white.hidden = true;
    document.body.append(white);
    try {
        // Only methods that SvgPen has are used in drawings.
        draw(/** @type {CanvasRenderingContext2D} */ (/** @type {unknown} */ (pen)), {
            width,
            height,
            colour: colours(white),
            next: work => work(),
            paper: true,
        });
    } finally {
        white.remove();
    }
    const source = `${title} ${window.location.href}`;
    return pen.file({ millimetres, title, source, metadata: json(columns, rows()) });
}
