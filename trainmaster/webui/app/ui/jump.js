/** The jump box: any page of the shell, any experiment by its number or name; and the list of keys. */
import { signal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { openDialog } from "./overlay.js";
import { go, href } from "./router.js";
import { component, tags } from "./tags.js";

const { div, input, kbd, li, p, span, table, tbody, td, th, tr, ul } = tags;

/** @typedef {{ text: string, to: string, key: string }} Section */
/** @typedef {{ text: string, hint: string, to: string }} Target */

const DEBOUNCE = 120; // ms

/** @param {Section[]} sections */
export async function openJump(sections) {
    const typed = signal("");
    const found = signal(/** @type {Target[]} */ (ofSections(sections, "")));
    const chosen = signal(0);
    const nothing = signal("");
    let timer = 0;
    /** @param {string} text */
    const look = text => {
        typed.value = text;
        chosen.value = 0;
        nothing.value = "";
        found.value = ofSections(sections, text);
        clearTimeout(timer);
        timer = setTimeout(async () => {
            let said = "Nothing found.";
            const more = await experiments(text).catch(error => {
                said = String(error.message);
                return [];
            });
            if (typed.value !== text) return;
            found.value = [...ofSections(sections, text), ...more, ...trials(text)];
            nothing.value = said;
        }, DEBOUNCE);
    };
    const answer = await openDialog({
        title: "Jump to",
        body: close => Box({ found, chosen, nothing, look, close }),
        actions: [{ text: "Go", answer: "go", disabled: () => found.value.length === 0 }],
    });
    clearTimeout(timer);
    const target = found.value[chosen.value];
    if (answer === "go" && target) go(href(target.to));
}

/**
 * @param {Section[]} sections
 * @param {string} text
 * @returns {Target[]}
 */
function ofSections(sections, text) {
    const word = text.trim().toLowerCase();
    const fitting = sections.filter(one => one.text.toLowerCase().includes(word));
    return fitting.map(one => ({ text: one.text, hint: `g ${one.key}`, to: one.to }));
}

/** @param {string} text @returns {Target[]} */
function trials(text) {
    const number = /^(?:trial )?#?(\d{1,10})$/.exec(text.trim().toLowerCase())?.[1];
    if (!number) return [];
    return [
        { text: `Trial ${number}`, hint: "trial", to: `trials/${number}` },
        { text: `Log of trial ${number}`, hint: "log", to: `trials/${number}/log` },
    ];
}

/**
 * @param {string} text
 * @returns {Promise<Target[]>}
 */
async function experiments(text) {
    const word = text.trim();
    if (!word) return [];
    const filter = /^#?\d+$/.test(word) ? `id:${word.replace("#", "")} archived:any` : `"${word.replaceAll('"', "")}"`;
    const words = new URLSearchParams({ filter, limit: "8", columns: "name,state" });
    /** @type {import("../../types/api.d.ts").ExperimentTable} */
    const answer = await get(`api/x1/experiments/table?${words}`);
    const name = answer.columns.indexOf("name");
    return answer.rows.map(row => ({
        text: visible(String(row[name]), 80),
        hint: `experiment ${row[0]}`,
        to: `experiments/${row[0]}`,
    }));
}

/** @import { Signal } from "../../vendor/signals/signals.js" */
const Box = component(
    (
        /** @type {{ found: Signal<Target[]>, chosen: Signal<number>, nothing: Signal<string>, look: (text: string) => void, close: (answer?: string) => void }} */
        { found, chosen, nothing, look, close },
    ) => {
        /** @param {KeyboardEvent} event */
        const keys = event => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (!step || found.value.length === 0) return;
            event.preventDefault();
            chosen.value = (chosen.value + step + found.value.length) % found.value.length;
        };
        return div(
            { class: "jump-box" },
            input({
                type: "text",
                role: "combobox",
                "aria-label": "Experiment, by its number or a part of its name; trial, by its number; or a page",
                "aria-expanded": true,
                "aria-controls": "jump-list",
                "aria-activedescendant": found.value.length ? `jump-${chosen.value}` : undefined,
                placeholder: "An experiment's number or name, a trial's number, or a page",
                autofocus: true,
                autocomplete: "off",
                onInput: event => look(event.currentTarget.value),
                onKeyDown: keys,
            }),
            ul(
                { id: "jump-list", role: "listbox", "aria-label": "Where to" },
                found.value.map((one, at) =>
                    li(
                        {
                            key: one.to,
                            id: `jump-${at}`,
                            role: "option",
                            "aria-selected": at === chosen.value,
                            onClick: () => {
                                chosen.value = at;
                                close("go");
                            },
                        },
                        span(null, one.text),
                        span({ class: "muted" }, one.hint),
                    ),
                ),
            ),
            found.value.length ? null : p({ class: "muted", role: "status" }, nothing.value),
        );
    },
);

/** @param {Section[]} sections */
export function showKeys(sections) {
    /** @type {[string, string][]} */
    const keys = [
        ["Ctrl K", "jump to an experiment or a page"],
        ...sections.map(one => /** @type {[string, string]} */ ([`g ${one.key}`, `go to ${one.text}`])),
        ["/", "filter the table, search the log"],
        ["j k", "next row, previous row"],
        ["x", "mark the row"],
        ["c", "compare the marked ones"],
        ["space ← →", "play and step the rung race; with shift to the next stop"],
        ["Alt ← →", "move a compared column"],
        ["Enter", "open the row"],
        ["n N", "in a log: next match, previous match"],
        ["f w", "in a log: follow its end, wrap long lines"],
        ["?", "this list"],
    ];
    return openDialog({
        title: "Keys",
        body: () =>
            table(
                { class: "keys" },
                tbody(
                    null,
                    keys.map(([key, what]) => tr({ key }, th({ scope: "row" }, kbd(null, key)), td(null, what))),
                ),
            ),
    });
}
