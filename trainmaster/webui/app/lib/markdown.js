/**
 * Notes as people write them, read into blocks: headings, lists, quotes, tables, code, emphasis and links. There is no
 * HTML in between, and what is none of these is text.
 */

/**
 * @typedef {{ kind: "text" | "strong" | "em" | "code", text: string } | { kind: "link", text: string, to: string }} Span
 * @typedef {{ kind: "heading", depth: number, spans: Span[] }
 *   | { kind: "text" | "quote", spans: Span[] }
 *   | { kind: "code", text: string }
 *   | { kind: "list", ordered: boolean, items: Span[][] }
 *   | { kind: "table", head: Span[][], rows: Span[][][] }
 *   | { kind: "rule" }} Block
 */

const MAX_CHARACTERS = 200_000; // characters that are read

/**
 * @param {string} text
 * @returns {Block[]}
 */
export function blocks(text) {
    const lines = text.slice(0, MAX_CHARACTERS).split(/\r?\n/);
    /** @type {Block[]} */
    const result = [];
    let at = 0;
    const takeLines = (/** @type {RegExp} */ pattern) => {
        const start = at;
        while (at < lines.length && pattern.test(lines[at] ?? "")) at += 1;
        return lines.slice(start, at);
    };
    while (at < lines.length) {
        const line = lines[at] ?? "";
        const heading = /^(#{1,6})\s+(.*)$/s.exec(line);
        if (line.trim() === "") {
            at += 1;
        } else if (line.startsWith("```")) {
            at += 1;
            const inside = [];
            while (at < lines.length && !lines[at]?.startsWith("```")) inside.push(lines[at++]);
            at += 1;
            result.push({ kind: "code", text: inside.join("\n") });
        } else if (heading) {
            at += 1;
            result.push({ kind: "heading", depth: heading[1]?.length ?? 1, spans: spans(heading[2] ?? "") });
        } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
            at += 1;
            result.push({ kind: "rule" });
        } else if (/^\s*[-*+]\s+/.test(line)) {
            const items = takeLines(/^\s*[-*+]\s+/).map(item => spans(item.replace(/^\s*[-*+]\s+/, "")));
            result.push({ kind: "list", ordered: false, items });
        } else if (/^\s*\d{1,9}[.)]\s+/.test(line)) {
            const items = takeLines(/^\s*\d{1,9}[.)]\s+/).map(item => spans(item.replace(/^\s*\d{1,9}[.)]\s+/, "")));
            result.push({ kind: "list", ordered: true, items });
        } else if (/^>/.test(line)) {
            const quoted = takeLines(/^>/).map(quoteLine => quoteLine.replace(/^>\s?/, ""));
            result.push({ kind: "quote", spans: spans(quoted.join(" ")) });
        } else if (line.includes("|") && isRuleOfTable(lines[at + 1] ?? "")) {
            const head = cells(line);
            at += 2;
            result.push({ kind: "table", head, rows: takeLines(/\|/).map(cells) });
        } else {
            const start = at;
            at += 1;
            while (at < lines.length && /^(?!\s*$|#{1,6}\s|```|>|\s*[-*+]\s|\s*\d{1,9}[.)]\s)/.test(lines[at] ?? ""))
                at += 1;
            result.push({ kind: "text", spans: spans(lines.slice(start, at).join(" ")) });
        }
    }
    return result;
}

/** @param {string} line */
function cells(line) {
    return parts(line).map(cell => spans(cell));
}

/** @param {string} line */
function parts(line) {
    return line
        .trim()
        .replace(/^\||\|$/g, "")
        .split("|")
        .map(cell => cell.trim());
}

/** Whether it is the line of dashes under the head of a table. @param {string} line */
function isRuleOfTable(line) {
    return parts(line).every(cell => /^:?-+:?$/.test(cell));
}

const BEGIN = /[`*[]|https?:\/\//g;
const ADDRESS = /[^\s<>()]*/y;
const WHITE = /\s/g;
const SPACE = " "; // any white space, as a mark

/**
 * Where each mark comes next. It is asked from left to right, and looks at no character twice for the same mark: a text
 * of opening marks that nothing closes takes no longer than another one.
 * @param {string} text
 */
function markFinder(text) {
    /** @type {Map<string, number>} */
    const positions = new Map();
    return (/** @type {string} */ mark, /** @type {number} */ from) => {
        let at = positions.get(mark);
        if (at === undefined || at < from) {
            const position = mark === SPACE ? space(text, from) : text.indexOf(mark, from);
            at = position < 0 ? Number.POSITIVE_INFINITY : position;
            positions.set(mark, at);
        }
        return at;
    };
}

/** @param {string} text @param {number} from */
function space(text, from) {
    WHITE.lastIndex = from;
    return WHITE.exec(text)?.index ?? -1;
}

/**
 * The piece of a text that begins with a mark at a place, and where it ends; null where the mark is only text.
 * @param {string} text
 * @param {number} at
 * @param {ReturnType<typeof markFinder>} next
 * @returns {[Span, number] | null}
 */
function spanAt(text, at, next) {
    const first = text[at];
    if (first === "`") {
        const end = next("`", at + 1);
        return end < text.length && end > at + 1 ? [{ kind: "code", text: text.slice(at + 1, end) }, end + 1] : null;
    }
    if (first === "*") {
        if (text[at + 1] === "*") {
            const end = next("*", at + 2);
            const closed = end > at + 2 && text[end + 1] === "*";
            return closed ? [{ kind: "strong", text: text.slice(at + 2, end) }, end + 2] : null;
        }
        const end = next("*", at + 1);
        if (end >= text.length || /\s/.test(text[at + 1] ?? " ")) return null;
        return [{ kind: "em", text: text.slice(at + 1, end) }, end + 1];
    }
    if (first === "[") {
        const end = next("]", at + 1);
        if (text[end + 1] !== "(") return null;
        const stop = Math.min(next(")", end + 2), next(SPACE, end + 2));
        if (text[stop] !== ")" || stop === end + 2) return null;
        return [linked(text.slice(at, stop + 1), text.slice(at + 1, end), text.slice(end + 2, stop)), stop + 1];
    }
    ADDRESS.lastIndex = at + text.slice(at, at + 8).indexOf("//") + 2;
    const from = ADDRESS.lastIndex;
    const end = from + (ADDRESS.exec(text)?.[0].length ?? 0);
    if (end === from) return null;
    return [linked(text.slice(at, end), "", text.slice(at, end)), end];
}

/**
 * @param {string} source
 * @param {string} label
 * @param {string} to
 * @returns {Span}
 */
function linked(source, label, to) {
    return isSafeLink(to) ? { kind: "link", text: label || to, to } : { kind: "text", text: source };
}

/**
 * @param {string} text
 * @returns {Span[]}
 */
export function spans(text) {
    /** @type {Span[]} */
    const result = [];
    const next = markFinder(text);
    let last = 0;
    BEGIN.lastIndex = 0;
    for (let match = BEGIN.exec(text); match; match = BEGIN.exec(text)) {
        const span = spanAt(text, match.index, next);
        if (span) {
            if (match.index > last) result.push({ kind: "text", text: text.slice(last, match.index) });
            result.push(span[0]);
            last = span[1];
        }
        BEGIN.lastIndex = span ? span[1] : match.index + 1;
    }
    if (last < text.length) result.push({ kind: "text", text: text.slice(last) });
    return result;
}

/** Only to other pages: no scripts, no data. @param {string} address */
function isSafeLink(address) {
    return /^https?:\/\//i.test(address) || /^(?![a-z][a-z0-9+.-]*:)(?!\/\/)[\w./#?=&%~-]+$/i.test(address);
}
