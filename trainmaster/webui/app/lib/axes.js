/** Axes of values that come in a table's column: numbers on a plain or logarithmic scale, words in a row. */

/** @typedef {{ readonly [name: string]: unknown }} Values */
/**
 * @typedef {object} Axis
 * @property {string} name of the column
 * @property {boolean} log
 * @property {number} low of numbers; 0 for words
 * @property {number} high
 * @property {string[] | null} categories the values of a column of words, in order
 * @property {(value: unknown) => number | null} position from 0 to 1; null where there is no value
 * @property {(place: number) => number} value the number at a place
 */

const MAX_CATEGORIES = 40;
const MIN_LOG_RATIO = 100; // a range of positive numbers this many times wide is shown on a logarithmic scale

/** @typedef {{ readonly [column: string]: string }} Kinds types of hyperparameters, as `log`, by the names of columns */

/** @param {{ hparamTypes: { [name: string]: string } }} board @returns {Kinds} */
export function kindsOf(board) {
    return Object.fromEntries(Object.entries(board.hparamTypes).map(([name, type]) => [`hp.${name}`, type]));
}

/**
 * The axis of a column; null where it has fewer than two different values.
 * @param {string} name
 * @param {readonly Values[]} rows
 * @param {Kinds} [kinds] of columns that are not in it, the values decide whether the scale is logarithmic
 * @returns {Axis | null}
 */
export function scaleOf(name, rows, kinds = {}) {
    let low = Infinity;
    let high = -Infinity;
    let numbers = true;
    /** @type {Set<string>} */
    const words = new Set();
    for (const row of rows) {
        const value = row[name];
        if (value === null || value === undefined) continue;
        if (typeof value === "number" && Number.isFinite(value)) {
            low = Math.min(low, value);
            high = Math.max(high, value);
        } else if (!isNonFinite(value)) {
            numbers = false;
        }
        if (words.size <= MAX_CATEGORIES) words.add(categoryOf(value));
    }
    if (words.size < 2) return null;
    const log = kinds[name] === undefined ? undefined : kinds[name] === "log" && low > 0;
    return numbers
        ? low < high
            ? numeric(name, low, high, log)
            : null
        : categorical(name, [...words].sort(compareCategories));
}

/** NaN and infinities come as words. @param {unknown} value */
function isNonFinite(value) {
    return value === "NaN" || value === "Infinity" || value === "-Infinity";
}

/** @param {unknown} value */
function categoryOf(value) {
    return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {string} a @param {string} b */
function compareCategories(a, b) {
    return Number(a) - Number(b) || (a < b ? -1 : a > b ? 1 : 0);
}

/**
 * @param {string} name
 * @param {number} low
 * @param {number} high
 * @param {boolean} [log]
 * @returns {Axis}
 */
export function numeric(name, low, high, log = low > 0 && high / low >= MIN_LOG_RATIO) {
    const turn = log ? Math.log : (/** @type {number} */ value) => value;
    const back = log ? Math.exp : (/** @type {number} */ value) => value;
    const first = turn(low);
    const length = turn(high) - first;
    return {
        name,
        log,
        low,
        high,
        categories: null,
        position: value =>
            typeof value === "number" && Number.isFinite(value) && (!log || value > 0)
                ? (turn(value) - first) / length
                : null,
        value: position => back(first + position * length),
    };
}

/**
 * @param {string} name
 * @param {string[]} words
 * @returns {Axis}
 */
function categorical(name, words) {
    const places = new Map(words.map((word, at) => [word, (at + 0.5) / words.length]));
    return {
        name,
        log: false,
        low: 0,
        high: words.length,
        categories: words,
        position: value => (value === null || value === undefined ? null : (places.get(categoryOf(value)) ?? null)),
        value: position => Math.min(words.length - 1, Math.max(0, Math.floor(position * words.length))),
    };
}

/**
 * A range that somebody has chosen on an axis, as text in an address: `0.001..0.01`, or `adam` for a word.
 * @param {Axis} axis
 * @param {number} from place
 * @param {number} to place
 */
export function rangeText(axis, from, to) {
    const [low, high] = from <= to ? [from, to] : [to, from];
    if (axis.categories) {
        return axis.categories.filter((_, at, all) => inside((at + 0.5) / all.length, low, high)).join("|");
    }
    return `${short(axis.value(low))}..${short(axis.value(high))}`;
}

/**
 * The same read again, as places; null for a text that is none.
 * @param {Axis} axis
 * @param {string} text
 * @returns {[number, number] | null}
 */
export function rangePlaces(axis, text) {
    if (axis.categories) {
        const places = text.split("|").map(word => axis.position(word) ?? Number.NaN);
        const half = 0.5 / axis.categories.length;
        const range = /** @type {[number, number]} */ ([Math.min(...places) - half, Math.max(...places) + half]);
        return Number.isNaN(range[0]) ? null : range;
    }
    const [low = "", high = ""] = text.split("..");
    if (low.trim() === "" || high.trim() === "") return null;
    const from = axis.position(Number(low));
    const to = axis.position(Number(high));
    return from === null || to === null ? null : [Math.min(from, to), Math.max(from, to)];
}

/**
 * @param {number} position
 * @param {number} low
 * @param {number} high
 */
export function inside(position, low, high) {
    return position >= low - 1e-9 && position <= high + 1e-9;
}

/** @param {number} value */
function short(value) {
    return String(Number(value.toPrecision(4)));
}
