/**
 * The filter line, split into its terms for chips and switches. What the terms mean is the master's business
 * (`services/views/filter_line.py`), which reads the same line.
 */

/**
 * @typedef {object} Term
 * @property {string} text as written in the line
 * @property {string} key empty for a mere word
 * @property {string} sign
 * @property {string[]} values
 * @property {boolean} negated
 */

const TERM = /(-?)(?:("[^"]+"|[^\s"<>=:!]+)(<=|>=|!=|[:<>=]))?((?:"[^"]*"|[^\s"])*)/y;
const VALUE = /"[^"]*"|[^,"]+/g;

/**
 * @param {string} line
 * @returns {Term[]} what cannot be read, as an open quotation mark, is left out
 */
export function terms(line) {
    /** @type {Term[]} */
    const result = [];
    let at = 0;
    while (at < line.length) {
        if (/\s/.test(line[at] ?? "")) {
            at += 1;
            continue;
        }
        TERM.lastIndex = at;
        const match = TERM.exec(line);
        if (!match || match[0] === "") {
            at += 1;
            continue;
        }
        at += match[0].length;
        const [text, minus, key = "", sign, rest = ""] = match;
        const values = sign ? (rest.match(VALUE) ?? []).map(plain) : [rest.replaceAll('"', "")];
        result.push({ text, key: plain(key), sign: sign ?? ":", values, negated: minus === "-" });
    }
    return result;
}

/** @param {string} text */
function plain(text) {
    return text.replace(/^"|"$/g, "");
}

/**
 * A value as it may stand in a line.
 * @param {string} value
 */
export function quoted(value) {
    const clean = value.replaceAll('"', "");
    return /[\s<>=:!,]/.test(clean) || clean === "" || clean.startsWith("-") ? `"${clean}"` : clean;
}

/**
 * The values of a key with a colon, as those of `state:running,paused`.
 * @param {string} line
 * @param {string} key
 */
export function valuesOf(line, key) {
    return terms(line)
        .filter(term => term.key === key && term.sign === ":" && !term.negated)
        .flatMap(term => term.values);
}

/**
 * The line with other values of a key; without values the key goes.
 * @param {string} line
 * @param {string} key
 * @param {string[]} values
 */
export function withValues(line, key, values) {
    const remaining = terms(line)
        .filter(term => term.key !== key || term.sign !== ":" || term.negated)
        .map(term => term.text);
    if (values.length) remaining.push(`${key}:${values.map(quoted).join(",")}`);
    return remaining.join(" ");
}

/**
 * The line without its term number `at`.
 * @param {string} line
 * @param {number} at
 */
export function without(line, at) {
    return terms(line)
        .filter((_, index) => index !== at)
        .map(term => term.text)
        .join(" ");
}
