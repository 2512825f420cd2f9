/** Numbers, times and sizes as people read them: four digits, relative times; the exact ones go into titles. */

const NONE = "–";

/**
 * A measured value with four digits, as 0.9312 or 1.204e-5.
 * @param {number | null | undefined} value
 */
export function number(value) {
    if (value === null || value === undefined) return NONE;
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e6) return count(value);
    if (size < 1e-3 || size >= 1e6) return value.toExponential(3).replace("e+", "e").replace("-", "−");
    const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
    return value.toFixed(Math.min(digits, 6)).replace("-", "−");
}

/**
 * A number at an axis: as few digits as it has.
 * @param {number} value
 * @returns {string}
 */
export function tick(value) {
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e6)) {
        return value.toExponential().replace("e+", "e").replaceAll("-", "−");
    }
    return Number.isInteger(value) ? count(value) : String(value).replace("-", "−");
}

/**
 * A count with thin spaces between thousands.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function count(value) {
    if (value === null || value === undefined) return NONE;
    // Beyond this a number of JavaScript is not the one that was reported.
    if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return `≈${tick(Number(value.toPrecision(7)))}`;
    return String(value)
        .replace("-", "−")
        .replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** @param {number | null | undefined} share from 0 to 1 */
export function percent(share) {
    if (share === null || share === undefined) return NONE;
    return `${Math.floor(share * 100)}\u2009%`;
}

/**
 * Bytes as 12.3 MB.
 * @param {number | null | undefined} size
 */
export function bytes(size) {
    if (size === null || size === undefined) return NONE;
    let left = size;
    for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
        if (left < 1000 || unit === "TB")
            return `${left >= 100 || unit === "B" ? Math.round(left) : left.toFixed(1)} ${unit}`;
        left /= 1000;
    }
    return NONE;
}

/**
 * Seconds in the two largest units, as 3 h 12 min.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
    if (seconds === null || seconds === undefined) return NONE;
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return two(whole, 60, "min", 1, "s");
    if (whole < 86400) return two(whole, 3600, "h", 60, "min");
    return two(whole, 86400, "d", 3600, "h");
}

/**
 * @param {number} whole
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function two(whole, large, largeUnit, small, smallUnit) {
    const rest = Math.floor((whole % large) / small);
    return `${Math.floor(whole / large)} ${largeUnit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

/**
 * How long ago a moment was, as 5 min ago.
 * @param {string | number | null | undefined} moment RFC 3339, or milliseconds
 * @param {number} now milliseconds
 */
export function ago(moment, now) {
    const at = milliseconds(moment);
    if (at === null) return NONE;
    const seconds = Math.round((now - at) / 1000);
    if (seconds < 0) return `in ${coarse(-seconds)}`;
    return seconds < 5 ? "now" : `${coarse(seconds)} ago`;
}

/** @param {number} seconds */
function coarse(seconds) {
    for (const [size, unit] of /** @type {const} */ ([
        [86400 * 365, "y"],
        [86400, "d"],
        [3600, "h"],
        [60, "min"],
    ])) {
        if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return `${seconds} s`;
}

/**
 * A moment in full with its zone, for titles.
 * @param {string | number | null | undefined} moment
 */
export function exact(moment) {
    const at = milliseconds(moment);
    if (at === null) return "";
    const when = new Date(at);
    const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
    const minutes = -when.getTimezoneOffset();
    const zone = `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
    const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
    return `${day} ${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())} ${zone}`;
}

/** @param {string | number | null | undefined} moment */
function milliseconds(moment) {
    if (moment === null || moment === undefined || moment === "") return null;
    const at = typeof moment === "number" ? moment : Date.parse(moment);
    return Number.isNaN(at) ? null : at;
}

// Characters that nobody sees, or that turn what follows them: in a name they could make it look like another one. The
// same as in `trainmaster/texts.py`.
export const HIDDEN = /[\p{Cc}\p{Cs}\p{DI}\u2028\u2029\ufff9-\ufffb]/gu;

/**
 * A user's text with its hidden characters made visible, and cut where it is longer than anything a person reads.
 * @param {string} text
 * @param {number} [longest]
 */
export function visible(text, longest = 300) {
    const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
    return cut.replace(
        HIDDEN,
        character => `‹${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}›`,
    );
}

/**
 * One thing or several: `plural(2, "trial")` is `2 trials`.
 * @param {number} size
 * @param {string} word
 * @param {string} [several]
 */
export function plural(size, word, several = `${word}s`) {
    return `${count(size)} ${size === 1 ? word : several}`;
}
