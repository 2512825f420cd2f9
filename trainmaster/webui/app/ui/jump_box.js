/** The jump box: any page of the shell, any experiment by its number or name; and the list of keys. */
import { signal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { openDialog } from "./overlay.js";
import { href, navigate } from "./router.js";
import { component, tags } from "./tags.js";

const { div, input, kbd, li, p, span, table, tbody, td, th, tr, ul } = tags;

/** @typedef {{ text: string, to: string, key: string }} Section */
/** @typedef {{ text: string, hint: string, to: string }} Target */

const DEBOUNCE = 120; // ms

/** @param {Section[]} sections */
export async function openJump(sections) {
    const typed = signal("");
    const targets = signal(/** @type {Target[]} */ (matchingSections(sections, "")));
    const chosen = signal(0);
    const nothing = signal("");
    let timer = 0;
    /** @param {string} text */
    const search = text => {
        typed.value = text;
        chosen.value = 0;
        nothing.value = "";
        targets.value = matchingSections(sections, text);
        clearTimeout(timer);
        timer = setTimeout(async () => {
            let emptyText = "No matches.";
            const matches = await findExperiments(text).catch(error => {
                emptyText = String(error.message);
                return [];
            });
            if (typed.value !== text) return;
            targets.value = [...matchingSections(sections, text), ...matches, ...trialTargets(text)];
            nothing.value = emptyText;
        }, DEBOUNCE);
    };
    const answer = await openDialog({
        title: "Jump to",
        body: close => JumpBox({ targets, chosen, nothing, search, close }),
        actions: [{ text: "Go", answer: "go", disabled: () => targets.value.length === 0 }],
    });
    clearTimeout(timer);
    const target = targets.value[chosen.value];
    if (answer === "go" && target) navigate(href(target.to));
}

/**
 * @param {Section[]} sections
 * @param {string} text
 * @returns {Target[]}
 */
function matchingSections(sections, text) {
    const word = text.trim().toLowerCase();
    const fitting = sections.filter(section => section.text.toLowerCase().includes(word));
    return fitting.map(section => ({ text: section.text, hint: `g ${section.key}`, to: section.to }));
}

/** @param {string} text @returns {Target[]} */
function trialTargets(text) {
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
async function findExperiments(text) {
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
const JumpBox = component(
    (
        /** @type {{ targets: Signal<Target[]>, chosen: Signal<number>, nothing: Signal<string>, search: (text: string) => void, close: (answer?: string) => void }} */
        { targets, chosen, nothing, search, close },
    ) => {
        /** @param {KeyboardEvent} event */
        const keys = event => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (!step || targets.value.length === 0) return;
            event.preventDefault();
            chosen.value = (chosen.value + step + targets.value.length) % targets.value.length;
        };
        return div(
            { class: "jump-box" },
            input({
                type: "text",
                role: "combobox",
                "aria-label": "Number or name of an experiment, number of a trial, or a page",
                "aria-expanded": true,
                "aria-controls": "jump-list",
                "aria-activedescendant": targets.value.length ? `jump-${chosen.value}` : undefined,
                placeholder: "Experiment number or name, trial number, or page",
                autofocus: true,
                autocomplete: "off",
                onInput: event => search(event.currentTarget.value),
                onKeyDown: keys,
            }),
            ul(
                { id: "jump-list", role: "listbox", "aria-label": "Results" },
                targets.value.map((target, at) =>
                    li(
                        {
                            key: target.to,
                            id: `jump-${at}`,
                            role: "option",
                            "aria-selected": at === chosen.value,
                            onClick: () => {
                                chosen.value = at;
                                close("go");
                            },
                        },
                        span(null, target.text),
                        span({ class: "muted" }, target.hint),
                    ),
                ),
            ),
            targets.value.length ? null : p({ class: "muted", role: "status" }, nothing.value),
        );
    },
);

/** @param {Section[]} sections */
export function showKeys(sections) {
    /** @type {[string, string][]} */
    const keys = [
        ["Ctrl K", "jump to an experiment or a page"],
        ...sections.map(section => /** @type {[string, string]} */ ([`g ${section.key}`, `go to ${section.text}`])),
        ["/", "filter the table, search the log"],
        ["j k", "next row, previous row"],
        ["x", "mark the row"],
        ["c", "compare the marked rows"],
        ["space ← →", "play or step the rung race; Shift jumps to the next stop"],
        ["Alt ← →", "move a compared column"],
        ["Enter", "open the row"],
        ["n N", "in a log: next match, previous match"],
        ["f w", "in a log: follow new lines, wrap long lines"],
        ["?", "show this list"],
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
