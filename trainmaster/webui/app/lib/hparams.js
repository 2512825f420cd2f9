/** Hyperparameters as fields of a form: nested ones by their path, values as texts. */

/** @typedef {{ path: string[], before: unknown, text: string }} Field */
/** @typedef {{ [name: string]: unknown }} Values */

/**
 * @param {Values} values
 * @param {string[]} [above]
 * @returns {Field[]}
 */
export function fieldsOf(values, above = []) {
    return Object.entries(values).flatMap(([name, value]) => {
        const path = [...above, name];
        const nested = typeof value === "object" && value !== null && !Array.isArray(value);
        if (nested && Object.keys(value).length) return fieldsOf(/** @type {Values} */ (value), path);
        return [{ path, before: value, text: typeof value === "string" ? value : JSON.stringify(value) }];
    });
}

/**
 * The value that a field's text means: of the kind that it had before.
 * @param {Field} field
 * @returns {{ value: unknown } | { sentence: string }}
 */
export function parseField({ path, before, text }) {
    const name = path.join(".");
    if (typeof before === "string") return { value: text };
    try {
        const value = JSON.parse(text);
        if (typeof before !== "number" || typeof value === "number") return { value };
    } catch {
        // The sentence below says what is expected.
    }
    return typeof before === "number"
        ? { sentence: `${name}: expected a number such as 0.001 or 1e-3, not ${JSON.stringify(text)}.` }
        : { sentence: `${name}: expected JSON such as ${JSON.stringify(before)}, not ${JSON.stringify(text)}.` };
}

/**
 * The fields as hyperparameters again, or the sentence on the first that cannot be read.
 * @param {readonly Field[]} fields
 * @returns {{ values: Values } | { sentence: string }}
 */
export function parseFields(fields) {
    /** @type {Values} */
    const values = {};
    for (const field of fields) {
        const parsed = parseField(field);
        if ("sentence" in parsed) return parsed;
        let at = values;
        for (const part of field.path.slice(0, -1)) at = /** @type {Values} */ ((at[part] ??= {}));
        Object.defineProperty(at, field.path.at(-1) ?? "", { value: parsed.value, enumerable: true, writable: true });
    }
    return { values };
}
