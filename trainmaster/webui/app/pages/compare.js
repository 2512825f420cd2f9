/** Two to twenty trials or experiments side by side: curves, values, what differs in their settings, code and cost. */
import { useSignal } from "../../vendor/signals/signals.js";
import { plural, visible } from "../lib/format.js";
import { LoadError, useModule, useQuery } from "../ui/query.js";
import { dataAddress, href, location, setQuery } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { Comparison } from "../../types/api.d.ts" */
/** @import { ComponentTag } from "../../types/tags.d.ts" */

const { a, button, code, div, form, h1, h2, input, li, p, section, span, ul } = tags;

const MAX_ITEMS = 20;

/**
 * @typedef {object} CompareView what the parts of the page get
 * @property {Comparison} answer
 * @property {string} noun what is compared, in a word
 * @property {number[]} ids as the address has them
 * @property {number} baseline 0: none
 * @property {(ids: number[]) => void} write puts them into the address
 */

export const Page = component(() => {
    const { query } = location.value;
    const kind = query.get("experiments") ? "experiments" : "trials";
    const ids = parseIds(query.get(kind) ?? "");
    const enough = ids.length > 0 && ids.length <= MAX_ITEMS;
    usePageTitle([
        { text: "Experiments", to: "experiments" },
        { text: "Compare", to: "compare" },
    ]);
    const { data, error, refetch } = useQuery(enough ? dataAddress.value : "");
    const answer = /** @type {Comparison | null} */ (data);
    if (!enough) return Instructions({ kind, ids });
    if (!answer || answer.kind !== kind) {
        return error ? LoadError({ error, retry: refetch }) : LoadingBar({});
    }
    const view = {
        answer,
        noun: kind.slice(0, -1),
        ids,
        baseline: Number(query.get("baseline") ?? 0),
        write: (/** @type {number[]} */ next) => setQuery({ [kind]: next.join(",") }),
    };
    return div(
        { class: "compare-page" },
        div(
            { class: "section-head" },
            h1(null, `${plural(answer.things.length, view.noun)} compared`),
            Add({ kind, ids }),
            ids.length === 1 ? span({ class: "muted" }, `Add a second ${view.noun} to compare.`) : null,
            error ? span({ class: "error-text", role: "alert" }, visible(error, 300)) : null,
        ),
        answer.missing.length
            ? ul(
                  { class: "error-text", "aria-label": "Not shown" },
                  answer.missing.map(item => li({ key: item.id }, visible(item.why, 300))),
              )
            : null,
        answer.things.length
            ? [
                  section({ key: "curves" }, Curves({ view })),
                  section({ key: "table" }, Table({ view })),
                  section({ key: "code" }, h2(null, "Code"), Code({ view })),
              ]
            : p(null, "None of these can be shown."),
    );
});

/**
 * Make a component of a module that is loaded when it is first shown.
 * @param {string} name
 * @param {() => Promise<ComponentTag<{ view: CompareView }>>} load
 */
function lazy(name, load) {
    return component(
        (/** @type {{ view: CompareView }} */ { view }) => useModule(name, load)?.({ view }) ?? LoadingBar({}),
    );
}

const Curves = lazy("curves", () => import("./compare_curves.js").then(module => module.CompareCurves));
const Table = lazy("table", () => import("./compare_table.js").then(module => module.CompareTable));
const Code = lazy("code", () => import("./compare_code.js").then(module => module.CompareCode));

/** @param {string} text */
function parseIds(text) {
    return [...new Set(text.split(",").map(Number).filter(Number.isInteger).filter(Boolean))];
}

const Instructions = component((/** @type {{ kind: string, ids: number[] }} */ { kind, ids }) =>
    div(
        { class: "page" },
        h1(null, "Compare"),
        p(
            null,
            ids.length > MAX_ITEMS
                ? `The address names ${ids.length} ${kind}; the limit is ${MAX_ITEMS}.`
                : "Mark 2 to 20 experiments or trials in a table and press c.",
        ),
        ids.length <= MAX_ITEMS ? Add({ kind, ids }) : null,
        p(
            null,
            a({ href: href("experiments") }, "Experiments"),
            span({ class: "muted" }, " or by URL: "),
            code(null, "compare?trials=12,15"),
        ),
    ),
);

const Add = component((/** @type {{ kind: string, ids: number[] }} */ { kind, ids }) => {
    const text = useSignal("");
    return form(
        {
            class: "compare-add",
            onSubmit: (/** @type {SubmitEvent} */ event) => {
                event.preventDefault();
                const added = parseIds(text.value);
                text.value = "";
                if (added.length) setQuery({ [kind]: [...new Set([...ids, ...added])].join(",") });
            },
        },
        input({
            type: "text",
            inputMode: "numeric",
            value: text.value,
            size: 10,
            placeholder: "number",
            "aria-label": `Number of another ${kind.slice(0, -1)}`,
            onInput: event => {
                text.value = event.currentTarget.value;
            },
        }),
        button({ type: "submit" }, "Add"),
    );
});
