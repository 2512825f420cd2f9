/** What stands above a log: its search, its filters, how lines are shown, and what can be saved. */
import { useEffect, useRef } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { downloadText } from "../api/log_rows.js";
import { count, plural, visible } from "../lib/format.js";
import { FILTERS, LEVELS, listParam, toggled } from "../lib/log_text.js";
import { saveFile } from "./download.js";
import { showCounts } from "./log_strip.js";
import { copyText, Menu, openDialog, toast, toastError } from "./overlay.js";
import { location, setQuery } from "./router.js";
import { component, tags } from "./tags.js";

/** @import { LogRows } from "../api/log_rows.js" */
/** @import { MenuItem } from "./overlay.js" */

const { button, div, form, input, label, span } = tags;

const DEBOUNCE = 350; // ms of no typing after which is searched

/** @typedef {{ rankIds: number[], agentIds: string[], allocationIds: string[], stdtypes: string[] }} LogFields */

/**
 * @typedef {object} LogToolsProperties
 * @property {LogRows} rows
 * @property {string} command of det, which shows the same log
 * @property {(way: "next" | "previous") => void} onFind
 * @property {() => void} onFirstError
 * @property {(share: number) => void} onShare
 * @property {(seconds: number) => void} onTime
 * @property {{ current: HTMLInputElement | null }} field of the search
 */
export const LogTools = component((/** @type {LogToolsProperties} */ properties) => {
    const { rows, onFind, onFirstError } = properties;
    return div(
        { class: "log-tools", role: "toolbar", "aria-label": "Log" },
        Search(properties),
        div(
            { class: "log-matches" },
            MatchCount({ rows }),
            button(
                {
                    type: "button",
                    title: "Previous match (Shift+Enter, N)",
                    "aria-label": "Previous match",
                    onClick: () => onFind("previous"),
                },
                "↑",
            ),
            button(
                {
                    type: "button",
                    title: "Next match (Enter, n)",
                    "aria-label": "Next match",
                    onClick: () => onFind("next"),
                },
                "↓",
            ),
            button({ type: "button", onClick: onFirstError }, "First error"),
        ),
        Filters(properties),
        WrapToggle({}),
        SaveMenu(properties),
    );
});

const Search = component((/** @type {LogToolsProperties} */ { onFind, field }) => {
    const { query } = location.value;
    const inForce = query.get("q") ?? "";
    const typed = useSignal(inForce);
    const timer = useRef(0);
    useEffect(() => {
        typed.value = inForce;
        return () => clearTimeout(timer.current);
    }, [inForce]);
    /** @param {string} text */
    const apply = text => {
        clearTimeout(timer.current);
        if (text !== inForce) setQuery({ q: text || null, line: null, top: null }, { replace: true });
    };
    return div(
        { class: "log-search" },
        input({
            ref: field,
            type: "search",
            "aria-label": "Search the log",
            placeholder: "Search",
            title: "Search the log (/)",
            spellcheck: false,
            autocomplete: "off",
            value: typed.value,
            onInput: event => {
                const text = event.currentTarget.value;
                typed.value = text;
                clearTimeout(timer.current);
                timer.current = setTimeout(() => apply(text), DEBOUNCE);
            },
            onKeyDown: event => {
                if (event.key === "Enter") {
                    if (typed.value !== inForce) apply(typed.value);
                    else onFind(event.shiftKey ? "previous" : "next");
                } else if (event.key === "Escape") field.current?.blur();
                else return;
                event.preventDefault();
            },
        }),
        QueryToggle({ name: "regex", text: ".*", label: "Regular expression" }),
        QueryToggle({ name: "only", text: "only", label: "Only matching lines" }),
    );
});

const QueryToggle = component(
    (/** @type {{ name: string, text: string, label: string }} */ { name, text, label: description }) => {
        const on = location.value.query.has(name);
        return button(
            {
                type: "button",
                class: "log-switch",
                "aria-pressed": on,
                "aria-label": description,
                title: description,
                onClick: () => setQuery({ [name]: on ? null : "1", top: null }, { replace: true }),
            },
            text,
        );
    },
);

const MatchCount = component((/** @type {{ rows: LogRows }} */ { rows }) => {
    if (!location.value.query.get("q")) return span(null, "");
    const matches = rows.matches.value;
    const match = rows.match.value;
    const text =
        matches === null
            ? "counting …"
            : matches === 0
              ? "no match"
              : match
                ? `${count(match)} of ${count(matches)}`
                : plural(matches, "match", "matches");
    return span({ class: "log-count", role: "status" }, text);
});

// -- filters ----------------------------------------------------------------------------------------------------------

const Filters = component((/** @type {LogToolsProperties} */ { rows, onTime }) => {
    const fields = useSignal(/** @type {LogFields | null} */ (null));
    const { query } = location.value;
    const loadFields = () => {
        get(`api/v1/tasks/${encodeURIComponent(rows.task)}/logs/fields`).then((/** @type {any} */ answer) => {
            fields.value = answer?.result ?? answer;
        }, toastError);
    };
    useEffect(() => {
        fields.value = null;
    }, [rows.task]);
    /**
     * @param {string} name
     * @param {readonly (string | number)[]} values
     * @param {(value: string) => string} [shown]
     */
    const choices = (name, values, shown = value => value) => {
        const chosen = listParam(query, name);
        /** @type {MenuItem[]} */
        const items = values.map(value => ({
            text: visible(shown(String(value)), 80),
            checked: chosen.includes(String(value)),
            stays: true,
            action: () =>
                setQuery({
                    [name]: toggled(listParam(location.peek().query, name), String(value)).join(",") || null,
                    top: null,
                }),
        }));
        if (chosen.length) items.push({ text: "All", action: () => setQuery({ [name]: null, side: null, top: null }) });
        if (name === "rank" && chosen.length > 1)
            items.push({
                text: "Side by side",
                checked: query.has("side"),
                action: () => setQuery({ side: query.has("side") ? null : "1" }),
            });
        return items.length ? items : [{ text: fields.value ? "None" : "…", disabled: true, action: () => undefined }];
    };
    /** @param {string} name @param {string} word */
    const text = (name, word) => {
        const chosen = listParam(query, name);
        return chosen.length
            ? `${word} ${visible(chosen.map(item => (name === "job" ? jobOf(item) : item)).join(", "), 24)}`
            : word;
    };
    const level = query.get("level") ?? "";
    const set = FILTERS.some(name => query.get(name));
    return div(
        { class: "log-filters" },
        Menu({
            label: level ? `Level: ${level} and above` : "Level",
            class: level ? "on" : "",
            text: level ? `${level} and above` : "Level",
            items: () => [
                { text: "All levels", checked: !level, action: () => setQuery({ level: null, top: null }) },
                ...LEVELS.slice(1).map(lowest => ({
                    text: lowest === "CRITICAL" ? "critical" : `${lowest.toLowerCase()} and above`,
                    checked: level === lowest.toLowerCase(),
                    action: () => setQuery({ level: lowest.toLowerCase(), top: null }),
                })),
            ],
        }),
        ...[
            Menu({
                key: "rank",
                label: text("rank", "Rank"),
                class: query.get("rank") ? "on" : "",
                text: text("rank", "Rank"),
                onOpen: loadFields,
                items: () =>
                    choices("rank", [...(fields.value?.rankIds ?? []), ...(fields.value ? [-1] : [])], rank =>
                        rank === "-1" ? "lines without a rank" : `rank ${rank}`,
                    ),
            }),
            Menu({
                key: "node",
                label: text("node", "Node"),
                class: query.get("node") ? "on" : "",
                text: text("node", "Node"),
                onOpen: loadFields,
                items: () => choices("node", fields.value?.agentIds ?? []),
            }),
            Menu({
                key: "job",
                label: text("job", "Job"),
                class: query.get("job") ? "on" : "",
                text: text("job", "Job"),
                onOpen: loadFields,
                items: () =>
                    choices("job", fields.value?.allocationIds ?? [], allocation => `job ${jobOf(allocation)}`),
            }),
            Menu({
                key: "stream",
                label: text("stream", "Stream"),
                class: query.get("stream") ? "on" : "",
                text: text("stream", "Stream"),
                onOpen: loadFields,
                items: () => choices("stream", fields.value?.stdtypes ?? []),
            }),
        ],
        Menu({
            label: "Time",
            class: query.get("since") || query.get("until") ? "on" : "",
            text: "Time",
            items: () => [
                ...TIMES.map(([mode, word]) => ({
                    text: word,
                    checked: (query.get("time") ?? "") === mode,
                    action: () => setQuery({ time: mode || null }, { replace: true }),
                })),
                { text: "Go to a time …", action: () => void askTime(onTime) },
                {
                    text: "Time range …",
                    checked: Boolean(query.get("since") || query.get("until")),
                    action: () => void askSpan(),
                },
            ],
        }),
        set
            ? button(
                  {
                      type: "button",
                      class: "plain",
                      onClick: () =>
                          setQuery({ ...Object.fromEntries(FILTERS.map(name => [name, null])), side: null, top: null }),
                  },
                  "Clear filters",
              )
            : null,
    );
});

const TIMES = /** @type {const} */ ([
    ["", "Time of day"],
    ["ago", "Relative"],
    ["start", "Since start"],
    ["none", "Hidden"],
]);

/** The number of a job: allocations are called TASK.NUMBER. @param {string} allocation */
function jobOf(allocation) {
    return allocation.split(".").at(-1) ?? allocation;
}

/** @param {(seconds: number) => void} onTime */
async function askTime(onTime) {
    const typed = signal("");
    const answer = await openDialog({
        title: "Go to a time",
        body: close => timeForm([["At", typed]], () => close("go")),
        actions: [{ text: "Go", answer: "go" }],
    });
    const at = Date.parse(typed.value);
    if (answer === "go" && !Number.isNaN(at)) onTime(at / 1000);
}

async function askSpan() {
    const { query } = location.peek();
    const since = signal(toLocalInput(query.get("since")));
    const until = signal(toLocalInput(query.get("until")));
    const answer = await openDialog({
        title: "Time range",
        body: close =>
            timeForm(
                [
                    ["After", since],
                    ["Before", until],
                ],
                () => close("set"),
            ),
        actions: [{ text: "Show", answer: "set" }],
    });
    if (answer === "set") setQuery({ since: toUtc(since.value), until: toUtc(until.value), top: null });
}

/**
 * @param {[string, import("../../vendor/signals/signals.js").Signal<string>][]} fields
 * @param {() => void} onDone
 */
function timeForm(fields, onDone) {
    return form(
        {
            class: "log-times",
            onSubmit: event => {
                event.preventDefault();
                onDone();
            },
        },
        fields.map(([word, value]) =>
            label(
                { key: word },
                span(null, word),
                input({
                    type: "datetime-local",
                    step: 1,
                    value: value.peek(),
                    onInput: event => {
                        value.value = event.currentTarget.value;
                    },
                }),
            ),
        ),
    );
}

/** @param {string | null} moment RFC 3339 */
function toLocalInput(moment) {
    const at = Date.parse(moment ?? "");
    if (Number.isNaN(at)) return "";
    const when = new Date(at);
    return new Date(at - when.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {string} typed */
function toUtc(typed) {
    const at = Date.parse(typed);
    return Number.isNaN(at) ? null : new Date(at).toISOString();
}

// -- views and files --------------------------------------------------------------------------------------------------

const WrapToggle = component(() => {
    const wraps = location.value.query.has("wrap");
    return button(
        {
            type: "button",
            class: "log-switch",
            "aria-pressed": wraps,
            title: "Wrap long lines (w)",
            onClick: () => setQuery({ wrap: wraps ? null : "1" }, { replace: true }),
        },
        "Wrap",
    );
});

const SaveMenu = component((/** @type {LogToolsProperties} */ { rows, command, onShare }) =>
    Menu({
        label: "Save or copy",
        text: "Save",
        items: () => [
            {
                text: "Lines as text",
                hint: "all that match the filter",
                action: () => {
                    toast("Downloading the log");
                    downloadText(rows.downloadAddress).then(
                        content => saveFile(`${rows.task}.log`, content, "text/plain"),
                        toastError,
                    );
                },
            },
            {
                text: "Lines as JSON",
                hint: "one object a line",
                action: () => open(rows.downloadAddress, "_blank", "noopener"),
            },
            { text: "Copy link", action: () => copyText(window.location.href) },
            { text: "Copy as det", hint: "logs", action: () => copyText(command) },
            {
                text: "Errors and matches as a table",
                disabled: rows.bins.value === null,
                action: () => {
                    const bins = rows.bins.peek();
                    if (bins) void showCounts(bins, onShare);
                },
            },
        ],
    }),
);
