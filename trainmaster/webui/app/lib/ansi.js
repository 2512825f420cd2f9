/** Colours that programs write into their output: escape sequences (ECMA-48) become classes, all others are dropped. */

/** @typedef {{ text: string, style: string }} Piece `style`: classes, empty for plain text */

// Control sequences, strings up to their end (titles, links: OSC 8), and two-character escapes; cut ones too.
const ESCAPE =
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
    /(?:\u001b\[|\u009b)([0-?]*)[ -/]*([@-~]?)|(?:\u001b[\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -/]*[0-~]?/g;

/** What is in force: numbers of a palette of 256, or null. */
class Look {
    constructor() {
        this.reset();
    }

    reset() {
        /** @type {number | null} */
        this.front = null;
        /** @type {number | null} */
        this.back = null;
        this.bold = false;
        this.faint = false;
        this.italic = false;
        this.underlined = false;
        this.swapped = false;
    }

    classes() {
        const [front, back] = this.swapped ? [this.back, this.front] : [this.front, this.back];
        const words = [];
        if (front !== null) words.push(`ansi-${front}`);
        if (back !== null) words.push(`ansi-on-${back}`);
        if (this.swapped && front === null && back === null) words.push("ansi-swapped");
        if (this.bold) words.push("ansi-bold");
        if (this.faint) words.push("ansi-faint");
        if (this.italic) words.push("ansi-italic");
        if (this.underlined) words.push("ansi-underlined");
        return words.join(" ");
    }

    /** @param {number[]} codes of a sequence `CSI ... m` */
    apply(codes) {
        for (let at = 0; at < codes.length; at += 1) {
            const code = codes[at] ?? 0;
            if (code === 38 || code === 48) {
                const [colour, used] = extended(codes.slice(at + 1));
                if (code === 38) this.front = colour;
                else this.back = colour;
                at += used;
            } else this.set(code);
        }
    }

    /** @param {number} code */
    set(code) {
        if (code === 0) this.reset();
        else if (code === 1) this.bold = true;
        else if (code === 2) this.faint = true;
        else if (code === 3) this.italic = true;
        else if (code === 4) this.underlined = true;
        else if (code === 7) this.swapped = true;
        else if (code === 22) this.bold = this.faint = false;
        else if (code === 23) this.italic = false;
        else if (code === 24) this.underlined = false;
        else if (code === 27) this.swapped = false;
        else if (code === 39) this.front = null;
        else if (code === 49) this.back = null;
        else if (code >= 30 && code <= 37) this.front = code - 30;
        else if (code >= 40 && code <= 47) this.back = code - 40;
        else if (code >= 90 && code <= 97) this.front = code - 82;
        else if (code >= 100 && code <= 107) this.back = code - 92;
    }
}

/**
 * A colour by its number (`5;N`), or by red, green and blue (`2;R;G;B`), which becomes the nearest of the 256.
 * @param {number[]} rest
 * @returns {[number | null, number]} the colour, and how many numbers it took
 */
function extended(rest) {
    const [kind, ...values] = rest;
    if (kind === 5) {
        const number = values[0] ?? -1;
        return [number >= 0 && number <= 255 ? number : null, 2];
    }
    if (kind !== 2) return [null, rest.length];
    const cube = values.slice(0, 3).map(value => Math.round((Math.min(255, Math.max(0, value)) / 255) * 5));
    return cube.length === 3
        ? [16 + 36 * (cube[0] ?? 0) + 6 * (cube[1] ?? 0) + (cube[2] ?? 0), 4]
        : [null, rest.length];
}

/**
 * A line as pieces of one look each. Text before a carriage return was overwritten, as by progress bars: only
 * the last state of a line is shown.
 * @param {string} text
 * @returns {Piece[]}
 */
export function pieces(text) {
    const line = overwritten(text);
    if (line.search(ESCAPE) < 0) return line ? [{ text: line, style: "" }] : [];
    const look = new Look();
    /** @type {Piece[]} */
    const result = [];
    let from = 0;
    const add = (/** @type {string} */ part) => {
        if (!part) return;
        const style = look.classes();
        const last = result.at(-1);
        if (last?.style === style) last.text += part;
        else result.push({ text: part, style });
    };
    for (const match of line.matchAll(ESCAPE)) {
        add(line.slice(from, match.index));
        from = match.index + match[0].length;
        if (match[2] === "m" && /^[\d;:]*$/.test(match[1] ?? ""))
            look.apply((match[1] || "0").split(/[;:]/).map(part => Number(part) || 0));
    }
    add(line.slice(from));
    return result;
}

/** @param {string} text without its escape sequences */
export function plain(text) {
    return pieces(text)
        .map(piece => piece.text)
        .join("");
}

/** @param {string} text */
function overwritten(text) {
    let end = text.length;
    while (text[end - 1] === "\r") end -= 1;
    return text.slice(text.lastIndexOf("\r", end - 1) + 1, end);
}

/**
 * The colour of a number from 16 on: a cube of 6 by 6 by 6, then greys. The first sixteen are the theme's.
 * @param {number} number
 */
export function paletteColour(number) {
    if (number >= 232) {
        const grey = 8 + (number - 232) * 10;
        return `rgb(${grey}, ${grey}, ${grey})`;
    }
    const level = (/** @type {number} */ step) => (step ? 55 + step * 40 : 0);
    const rest = number - 16;
    return `rgb(${level(Math.floor(rest / 36))}, ${level(Math.floor(rest / 6) % 6)}, ${level(rest % 6)})`;
}
