/** Notes as elements: no HTML is read, and links lead to web pages only. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { visible } from "../lib/format.js";
import { blocks } from "../lib/markdown.js";
import { component, tags } from "./tags.js";

/** @import { Block, Span } from "../lib/markdown.js" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, blockquote, code, div, em, h2, h3, hr, li, ol, p, pre, strong, table, tbody, td, th, thead, tr, ul } = tags;

const MAX_LENGTH = 100_000;

export const Markdown = component((/** @type {{ text: string }} */ { text }) => {
    const parsed = useMemo(() => blocks(text), [text]);
    return div(
        { class: "markdown" },
        parsed.map((block, key) => BlockView({ key, block })),
    );
});

const BlockView = component((/** @type {{ block: Block }} */ { block }) => {
    switch (block.kind) {
        case "heading":
            return (block.depth <= 2 ? h2 : h3)(null, words(block.spans));
        case "code":
            return pre(
                null,
                code(
                    null,
                    block.text.split("\n").map(line => `${visible(line, MAX_LENGTH)}\n`),
                ),
            );
        case "quote":
            return blockquote(null, words(block.spans));
        case "rule":
            return hr(null);
        case "list":
            return (block.ordered ? ol : ul)(
                null,
                block.items.map((item, key) => li({ key }, words(item))),
            );
        case "table":
            return table(
                null,
                thead(
                    null,
                    tr(
                        null,
                        block.head.map((cell, key) => th({ key }, words(cell))),
                    ),
                ),
                tbody(
                    null,
                    block.rows.map((row, key) =>
                        tr(
                            { key },
                            row.map((cell, at) => td({ key: at }, words(cell))),
                        ),
                    ),
                ),
            );
        default:
            return p(null, words(block.spans));
    }
});

/** @param {Span[]} spans @returns {Content[]} */
function words(spans) {
    return spans.map((span, key) => {
        const text = visible(span.text, MAX_LENGTH);
        switch (span.kind) {
            case "strong":
                return strong({ key }, text);
            case "em":
                return em({ key }, text);
            case "code":
                return code({ key }, text);
            case "link":
                return a(
                    { key, href: span.to, rel: "noopener noreferrer", target: "_blank", title: visible(span.to) },
                    text,
                );
            default:
                return text;
        }
    });
}
