/** A configuration as YAML that people read: no anchors, no flow style but for empty values and short lists. */

const PLAIN = /^[A-Za-z_/.][\w ./@+()-]*$/;
const WORD = /^(true|false|yes|no|on|off|null|~|y|n)$/i;
const SHORT = 72; // characters of a list in one line

/**
 * @param {unknown} value JSON
 * @returns {string}
 */
export function yaml(value) {
    const lines = block(value, 0);
    return `${lines.join("\n")}\n`;
}

/**
 * @param {unknown} value
 * @param {number} depth
 * @returns {string[]}
 */
function block(value, depth) {
    const margin = "  ".repeat(depth);
    if (Array.isArray(value)) {
        if (isShort(value)) return [margin + scalar(value)];
        return value.flatMap(item => {
            if (isLeaf(item)) return `${margin}- ${scalar(item)}`;
            const [first = "", ...rest] = block(item, depth + 1);
            return [`${margin}- ${first.trimStart()}`, ...rest];
        });
    }
    if (typeof value === "object" && value !== null && Object.keys(value).length > 0) {
        return Object.entries(value).flatMap(([key, item]) => {
            const head = `${margin}${text(key)}:`;
            return isLeaf(item) ? [`${head} ${scalar(item)}`] : [head, ...block(item, depth + 1)];
        });
    }
    return [margin + scalar(value)];
}

/** @param {unknown} value */
function isLeaf(value) {
    if (Array.isArray(value)) return isShort(value);
    return typeof value !== "object" || value === null || Object.keys(value).length === 0;
}

/** @param {unknown[]} list */
function isShort(list) {
    if (list.length > SHORT) return false;
    return list.every(item => typeof item !== "object" || item === null) && scalar(list).length <= SHORT;
}

/** @param {unknown} value @returns {string} */
function scalar(value) {
    if (Array.isArray(value)) return `[${value.map(scalar).join(", ")}]`;
    if (value === null || value === undefined) return "null";
    if (typeof value === "object") return "{}";
    return typeof value === "string" ? text(value) : String(value);
}

/** @param {string} word */
function text(word) {
    return PLAIN.test(word) && !WORD.test(word) && !word.endsWith(" ") ? word : JSON.stringify(word);
}
