/** Two to twenty trials or experiments side by side: curves, values, what differs in their settings, code and cost. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { plural, visible } from "../lib/format.js";
import { toastError } from "../ui/overlay.js";
import { dataAddress, href, place, setQuery } from "../ui/router.js";
import { usePlace, Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { Comparison } from "../../types/api.d.ts" */
/** @import { ComponentTag } from "../../types/tags.d.ts" */

const { a, button, code, div, form, h1, h2, input, li, p, section, span, ul } = tags;

const MOST = 20;

/**
 * @typedef {object} CompareView what the parts of the page get
 * @property {Comparison} answer
 * @property {string} one what is compared, in a word
 * @property {number[]} ids as the address has them
 * @property {number} baseline 0: none
 * @property {(ids: number[]) => void} write puts them into the address
 */

export const Page = component(() => {
    const { query } = place.value;
    const kind = query.get("experiments") ? "experiments" : "trials";
    const ids = idsOf(query.get(kind) ?? "");
    const address = dataAddress.value;
    const found = useSignal(/** @type {Comparison | null} */ (null));
    const said = useSignal("");
    const enough = ids.length > 0 && ids.length <= MOST;
    usePlace([
        { text: "Experiments", to: "experiments" },
        { text: "Compare", to: "compare" },
    ]);
    useEffect(() => {
        if (!enough) return undefined;
        let gone = false;
        get(address).then(
            answer => {
                if (gone) return;
                found.value = answer;
                said.value = "";
            },
            error => {
                if (!gone) said.value = error.message;
            },
        );
        return () => {
            gone = true;
        };
    }, [address, enough]);
    if (!enough) return Few({ kind, ids });
    const answer = found.value;
    if (!answer || answer.kind !== kind) {
        return said.value
            ? div({ class: "page", role: "alert" }, h1(null, "Not compared"), p(null, visible(said.value, 1000)))
            : Waiting({});
    }
    const view = {
        answer,
        one: kind.slice(0, -1),
        ids,
        baseline: Number(query.get("baseline") ?? 0),
        write: (/** @type {number[]} */ next) => setQuery({ [kind]: next.join(",") }),
    };
    return div(
        { class: "compare-page" },
        div(
            { class: "section-head" },
            h1(null, `${plural(answer.things.length, view.one)} compared`),
            Add({ kind, ids }),
            ids.length === 1 ? span({ class: "muted" }, `Name a second one to compare it with.`) : null,
            said.value ? span({ class: "said", role: "alert" }, visible(said.value, 300)) : null,
        ),
        answer.missing.length
            ? ul(
                  { class: "said", "aria-label": "Not shown" },
                  answer.missing.map(one => li({ key: one.id }, visible(one.why, 300))),
              )
            : null,
        answer.things.length
            ? [
                  section({ key: "curves" }, Curves({ view })),
                  section({ key: "table" }, Table({ view })),
                  section({ key: "code" }, h2(null, "Code"), Code({ view })),
              ]
            : p(null, "Nothing of it can be shown."),
    );
});

/**
 * A part of the page, in a module of its own.
 * @param {() => Promise<ComponentTag<{ view: CompareView }>>} load
 */
function later(load) {
    return component((/** @type {{ view: CompareView }} */ { view }) => {
        const loaded = useSignal(/** @type {ComponentTag<{ view: CompareView }> | null} */ (null));
        useEffect(() => {
            load().then(found => {
                loaded.value = found;
            }, toastError);
        }, []);
        return loaded.value?.({ view }) ?? Waiting({});
    });
}

const Curves = later(() => import("./compare_curves.js").then(module => module.CompareCurves));
const Table = later(() => import("./compare_table.js").then(module => module.CompareTable));
const Code = later(() => import("./compare_code.js").then(module => module.CompareCode));

/** @param {string} text */
function idsOf(text) {
    return [...new Set(text.split(",").map(Number).filter(Number.isInteger).filter(Boolean))];
}

const Few = component((/** @type {{ kind: string, ids: number[] }} */ { kind, ids }) =>
    div(
        { class: "page" },
        h1(null, "Compare"),
        p(
            null,
            ids.length > MOST
                ? `The address names ${ids.length} ${kind}; at most ${MOST} are compared at once.`
                : "Mark 2 to 20 experiments in the list, or trials of an experiment, and press c.",
        ),
        ids.length <= MOST ? Add({ kind, ids }) : null,
        p(
            null,
            a({ href: href("experiments") }, "To the experiments"),
            span({ class: "muted" }, " or by address: "),
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
                const more = idsOf(text.value);
                text.value = "";
                if (more.length) setQuery({ [kind]: [...new Set([...ids, ...more])].join(",") });
            },
        },
        input({
            type: "text",
            inputMode: "numeric",
            value: text.value,
            size: 10,
            placeholder: "number",
            "aria-label": `Number of a further ${kind.slice(0, -1)}`,
            onInput: event => {
                text.value = event.currentTarget.value;
            },
        }),
        button({ type: "submit" }, "Add"),
    );
});
