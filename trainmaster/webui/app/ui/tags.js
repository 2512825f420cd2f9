/**
 * Elements without a template language: `tags.div({ class: "x" }, "text")`, and `component(Fn)` for a tag of a
 * component. Both are typed (types/tags.d.ts): a misspelt attribute or a wrong event is an error of the type checker.
 */
import { createElement } from "../../vendor/preact/preact.js";

/** @import { Content, ComponentTag, Tags } from "../../types/tags.d.ts" */
/** @import { FunctionComponent } from "../../vendor/preact/preact.js" */

/** @type {Map<string, unknown>} */
const made = new Map();

/** @type {Tags} */
export const tags = /** @type {Tags} */ (
    new Proxy(
        {},
        {
            get(_, name) {
                const word = String(name);
                let tag = made.get(word);
                if (tag === undefined) {
                    /** @type {(properties: object | null, ...content: Content[]) => unknown} */
                    tag = (properties, ...content) => createElement(word, /** @type {any} */ (properties), ...content);
                    made.set(word, tag);
                }
                return tag;
            },
        },
    )
);

/**
 * The tag of a component. Its `children` are the content that follows the properties.
 * @template {object} P
 * @param {(properties: P) => import("../../vendor/preact/preact.js").VNode | null} render
 * @returns {ComponentTag<Omit<P, "children">>}
 */
export function component(render) {
    return (properties, ...content) =>
        createElement(/** @type {FunctionComponent<any>} */ (/** @type {unknown} */ (render)), properties, ...content);
}
