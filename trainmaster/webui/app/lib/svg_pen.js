/** A pen with the methods of a canvas that our drawings use, which writes a vector graphic: one drawing, two outputs. */

const MM = 72 / 25.4; // points in a millimetre
const TYPE = 8; // points of the type on paper
const SCREEN_TYPE = 12; // pixels of the type on the screen
const DIGITS = 100; // a hundredth of a pixel

/**
 * How wide a drawing is, in pixels, whose type of 12 pixels has 8 points on paper of this width.
 * @param {number} millimetres
 */
export function paperWidth(millimetres) {
    return Math.round((millimetres * MM * SCREEN_TYPE) / TYPE);
}

/** Lines, arcs, rectangles and texts; translations, and rotations of texts. */
export class SvgPen {
    /**
     * @param {number} width
     * @param {number} height
     */
    constructor(width, height) {
        this.width = width;
        this.height = height;
        this.fillStyle = "#000";
        this.strokeStyle = "#000";
        this.lineWidth = 1;
        this.globalAlpha = 1;
        this.font = "12px sans-serif";
        this.lineJoin = "miter";
        /** @type {string} */
        this.textAlign = "start";
        /** @type {string} */
        this.textBaseline = "alphabetic";
        /** @type {string[]} */
        this.parts = [];
        this.path = "";
        this.dash = "";
        this.turn = "";
        /** @type {Record<string, unknown>[]} */
        this.stack = [];
    }

    save() {
        const { fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline, dash, turn } = this;
        this.stack.push({
            fillStyle,
            strokeStyle,
            lineWidth,
            globalAlpha,
            font,
            textAlign,
            textBaseline,
            dash,
            turn,
        });
    }

    restore() {
        Object.assign(this, this.stack.pop());
    }

    /** @param {number} x @param {number} y */
    translate(x, y) {
        this.turn += `translate(${short(x)} ${short(y)}) `;
    }

    /** @param {number} angle */
    rotate(angle) {
        this.turn += `rotate(${short((angle * 180) / Math.PI)}) `;
    }

    /** @param {number[]} lengths */
    setLineDash(lengths) {
        this.dash = lengths.map(short).join(" ");
    }

    beginPath() {
        this.path = "";
    }

    /** @param {number} x @param {number} y */
    moveTo(x, y) {
        this.path += `M${short(x)} ${short(y)}`;
    }

    /** @param {number} x @param {number} y */
    lineTo(x, y) {
        this.path += `${this.path ? "L" : "M"}${short(x)} ${short(y)}`;
    }

    closePath() {
        this.path += "Z";
    }

    /** A whole circle: our drawings have no others. @param {number} x @param {number} y @param {number} radius */
    arc(x, y, radius) {
        const r = short(radius);
        this.path += `M${short(x + radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(-2 * radius)} 0a${r} ${r} 0 1 0 ${short(2 * radius)} 0`;
    }

    /** @param {number} x @param {number} y @param {number} width @param {number} height */
    rect(x, y, width, height) {
        this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}Z`;
    }

    stroke() {
        const dash = this.dash ? ` stroke-dasharray="${this.dash}"` : "";
        this.add(
            `<path d="${this.path}" fill="none" stroke="${escaped(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="round"${dash}`,
        );
    }

    fill() {
        this.add(`<path d="${this.path}" fill="${escaped(this.fillStyle)}"`);
    }

    /** @param {number} x @param {number} y @param {number} width @param {number} height */
    fillRect(x, y, width, height) {
        this.add(
            `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${escaped(this.fillStyle)}"`,
        );
    }

    /** @param {number} x @param {number} y @param {number} width @param {number} height */
    strokeRect(x, y, width, height) {
        this.beginPath();
        this.rect(x, y, width, height);
        this.stroke();
    }

    /** @param {string} text @param {number} x @param {number} y */
    fillText(text, x, y) {
        this.write(text, x, y, `fill="${escaped(this.fillStyle)}"`);
    }

    /** @param {string} text @param {number} x @param {number} y */
    strokeText(text, x, y) {
        const line = `stroke="${escaped(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="round"`;
        this.write(text, x, y, `fill="none" ${line}`);
    }

    /** About as wide as the type of most systems. @param {string} text */
    measureText(text) {
        return { width: text.length * this.size() * 0.58 };
    }

    /**
     * @param {string} text
     * @param {number} x
     * @param {number} y
     * @param {string} attributes
     */
    write(text, x, y, attributes) {
        const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? "start";
        const down = { middle: 0.35, top: 0.8, hanging: 0.8, bottom: -0.2 }[this.textBaseline] ?? 0;
        const size = this.size();
        const bold = /\bbold\b|\b[67]00\b/.test(this.font) ? ' font-weight="bold"' : "";
        this.add(
            `<text x="${short(x)}" y="${short(y + down * size)}" font-size="${size}" text-anchor="${anchor}"${bold} ${attributes}`,
            `${escaped(text)}</text>`,
        );
    }

    size() {
        return Number(/(\d+(?:\.\d+)?)px/.exec(this.font)?.[1] ?? SCREEN_TYPE);
    }

    /** @param {string} begin of an element, without its end @param {string} [content] with the end */
    add(begin, content = "") {
        const faint = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
        const turn = this.turn ? ` transform="${this.turn.trim()}"` : "";
        this.parts.push(`${begin}${faint}${turn}${content ? `>${content}` : "/>"}`);
    }

    /**
     * Return the whole file.
     * @param {{ millimetres: number, title: string, source: string, metadata: string }} about `source`: where the values
     *   come from; `metadata`: the values
     */
    file({ millimetres, title, source, metadata }) {
        const height = (millimetres * this.height) / this.width;
        return [
            `<svg xmlns="http://www.w3.org/2000/svg" width="${millimetres}mm" height="${short(height)}mm" viewBox="0 0 ${this.width} ${this.height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">`,
            `<title>${escaped(title)}</title>`,
            `<desc>${escaped(source)}</desc>`,
            `<metadata>${escaped(metadata)}</metadata>`,
            ...this.parts,
            "</svg>",
            "",
        ].join("\n");
    }
}

/** @param {string} text */
export function escaped(text) {
    const clean = text.replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "�");
    return clean.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** @param {number} value */
function short(value) {
    return String(Math.round(value * DIGITS) / DIGITS);
}
