/** Notes as elements: no HTML is read, and links lead to web pages only. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { visible } from "../lib/format.js";
import { blocks } from "../lib/markdown.js";
import { component, tags } from "./tags.js";

/** @import { Block, Span } from "../lib/markdown.js" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, blockquote, code, div, em, h2, h3, hr, li, ol, p, pre, strong, table, tbody, td, th, thead, tr, ul } = tags;

const LONGEST = 100_000;

export const Markdown = component((/** @type {{ text: string }} */ { text }) => {
    const found = useMemo(() => blocks(text), [text]);
    return div(
        { class: "markdown" },
        found.map((one, key) => Piece({ key, one })),
    );
});

const Piece = component((/** @type {{ one: Block }} */ { one }) => {
    switch (one.kind) {
        case "heading":
            return (one.depth <= 2 ? h2 : h3)(null, words(one.spans));
        case "code":
            return pre(
                null,
                code(
                    null,
                    one.text.split("\n").map(line => `${visible(line, LONGEST)}\n`),
                ),
            );
        case "quote":
            return blockquote(null, words(one.spans));
        case "rule":
            return hr(null);
        case "list":
            return (one.ordered ? ol : ul)(
                null,
                one.items.map((item, key) => li({ key }, words(item))),
            );
        case "table":
            return table(
                null,
                thead(
                    null,
                    tr(
                        null,
                        one.head.map((cell, key) => th({ key }, words(cell))),
                    ),
                ),
                tbody(
                    null,
                    one.rows.map((row, key) =>
                        tr(
                            { key },
                            row.map((cell, at) => td({ key: at }, words(cell))),
                        ),
                    ),
                ),
            );
        default:
            return p(null, words(one.spans));
    }
});

/** @param {Span[]} spans @returns {Content[]} */
function words(spans) {
    return spans.map((one, key) => {
        const text = visible(one.text, LONGEST);
        switch (one.kind) {
            case "strong":
                return strong({ key }, text);
            case "em":
                return em({ key }, text);
            case "code":
                return code({ key }, text);
            case "link":
                return a(
                    { key, href: one.to, rel: "noopener noreferrer", target: "_blank", title: visible(one.to) },
                    text,
                );
            default:
                return text;
        }
    });
}
