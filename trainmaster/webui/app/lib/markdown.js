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

const MOST = 200_000; // characters that are read

/**
 * @param {string} text
 * @returns {Block[]}
 */
export function blocks(text) {
    const lines = text.slice(0, MOST).split(/\r?\n/);
    /** @type {Block[]} */
    const found = [];
    let at = 0;
    const taken = (/** @type {RegExp} */ wanted) => {
        const start = at;
        while (at < lines.length && wanted.test(lines[at] ?? "")) at += 1;
        return lines.slice(start, at);
    };
    while (at < lines.length) {
        const line = lines[at] ?? "";
        const heading = /^(#{1,6})\s+(.*)$/.exec(line);
        if (line.trim() === "") {
            at += 1;
        } else if (line.startsWith("```")) {
            at += 1;
            const inside = [];
            while (at < lines.length && !lines[at]?.startsWith("```")) inside.push(lines[at++]);
            at += 1;
            found.push({ kind: "code", text: inside.join("\n") });
        } else if (heading) {
            at += 1;
            found.push({ kind: "heading", depth: heading[1]?.length ?? 1, spans: spans(heading[2] ?? "") });
        } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
            at += 1;
            found.push({ kind: "rule" });
        } else if (/^\s*[-*+]\s+/.test(line)) {
            const items = taken(/^\s*[-*+]\s+/).map(one => spans(one.replace(/^\s*[-*+]\s+/, "")));
            found.push({ kind: "list", ordered: false, items });
        } else if (/^\s*\d{1,9}[.)]\s+/.test(line)) {
            const items = taken(/^\s*\d{1,9}[.)]\s+/).map(one => spans(one.replace(/^\s*\d{1,9}[.)]\s+/, "")));
            found.push({ kind: "list", ordered: true, items });
        } else if (/^>/.test(line)) {
            const quoted = taken(/^>/).map(one => one.replace(/^>\s?/, ""));
            found.push({ kind: "quote", spans: spans(quoted.join(" ")) });
        } else if (line.includes("|") && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "")) {
            const head = cells(line);
            at += 2;
            found.push({ kind: "table", head, rows: taken(/\|/).map(cells) });
        } else {
            const start = at;
            at += 1;
            while (at < lines.length && /^(?!\s*$|#{1,6}\s|```|>|\s*[-*+]\s|\s*\d{1,9}[.)]\s)/.test(lines[at] ?? ""))
                at += 1;
            found.push({ kind: "text", spans: spans(lines.slice(start, at).join(" ")) });
        }
    }
    return found;
}

/** @param {string} line */
function cells(line) {
    return line
        .trim()
        .replace(/^\||\|$/g, "")
        .split("|")
        .map(cell => spans(cell.trim()));
}

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]*)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>()]+)/g;

/**
 * @param {string} text
 * @returns {Span[]}
 */
export function spans(text) {
    /** @type {Span[]} */
    const found = [];
    let last = 0;
    for (const match of text.matchAll(INLINE)) {
        if (match.index > last) found.push({ kind: "text", text: text.slice(last, match.index) });
        const [whole, code, strong, em, label, to, bare] = match;
        const address = to ?? bare ?? "";
        if (code !== undefined) found.push({ kind: "code", text: code });
        else if (strong !== undefined) found.push({ kind: "strong", text: strong });
        else if (em !== undefined) found.push({ kind: "em", text: em });
        else if (safe(address)) found.push({ kind: "link", text: label || address, to: address });
        else found.push({ kind: "text", text: whole });
        last = match.index + whole.length;
    }
    if (last < text.length) found.push({ kind: "text", text: text.slice(last) });
    return found;
}

/** Only to other pages: no scripts, no data. @param {string} address */
function safe(address) {
    return /^https?:\/\//i.test(address) || /^(?![a-z][a-z0-9+.-]*:)(?!\/\/)[\w./#?=&%~-]+$/i.test(address);
}
