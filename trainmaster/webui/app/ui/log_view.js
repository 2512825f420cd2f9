/**
 * The log of a task: its end at first, which is followed; any part of it by the scroll bar, the strip, a search, a time
 * or a link to a line. Who reads is not disturbed: new lines wait.
 */
import { useEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { subscribe } from "../api/live.js";
import { LogRows } from "../api/log_rows.js";
import { reconnects } from "../api/state.js";
import { count, plural, visible } from "../lib/format.js";
import { listParam, logQueryOf } from "../lib/log_text.js";
import { lastTop, topToCentre, topToReveal } from "../lib/log_window.js";
import { LogLines } from "./log_lines.js";
import { LogStrip } from "./log_strip.js";
import { LogTools } from "./log_tools.js";
import { toast } from "./overlay.js";
import { location, setQuery } from "./router.js";
import { isTyping, LoadingBar } from "./shell.js";
import { component, tags } from "./tags.js";

/** @import { LogWindow, WindowLine } from "../../types/api.d.ts" */
/** @import { Times } from "../lib/log_text.js" */

const { button, div, p, span } = tags;

const MIN_REFRESH_INTERVAL = 100; // ms between two looks at what has come
const POSITION_DELAY = 400; // ms of no scrolling after which the address says where the reader is

/**
 * @typedef {object} LogViewProperties
 * @property {string} task
 * @property {boolean} live whether more lines may come
 * @property {string} command of det, which shows the same log
 */
export const LogView = component((/** @type {LogViewProperties} */ { task, live, command }) => {
    const { query } = location.value;
    const { filter, search } = logQueryOf(query);
    const rows = useMemo(
        () => new LogRows(task, new URLSearchParams(filter), new URLSearchParams(search)),
        [task, filter, search],
    );
    const top = useSignal(0);
    const view = useSignal(360);
    const following = useSignal(false);
    const field = useRef(/** @type {HTMLInputElement | null} */ (null));
    const chosen = Number(query.get("line")) || null;
    const scale = () => ({ total: rows.total.peek(), view: view.peek(), wraps: location.peek().query.has("wrap") });

    /**
     * Shows a window's focus.
     * @param {LogWindow} answer
     * @param {boolean} choose
     */
    const showFocus = (answer, choose) => {
        const index = answer.lines.findIndex(line => line.id === answer.focus);
        if (index < 0) return;
        rows.total.value = Math.max(rows.total.peek(), answer.total);
        following.value = false;
        top.value = topToCentre(scale(), answer.position + index);
        if (choose) setQuery({ line: String(answer.focus), top: null, find: null }, { replace: true });
    };
    const toTheEnd = () => {
        rows.revealAll();
        following.value = true;
        rows.skipped.value = null;
        setQuery({ line: null, top: null, find: null }, { replace: true });
        void rows.refresh(true);
    };
    /** @param {Record<string, string | number>} to */
    const openAt = to => {
        void rows.open(to).then(answer => {
            if (answer) showFocus(answer, false);
        });
    };
    const firstError = () => {
        void rows.open({ find: "error" }).then(answer => {
            if (answer?.focus) showFocus(answer, true);
            else if (answer) toast("This log has no error and no traceback.");
        });
    };
    /** @param {"next" | "previous"} direction */
    const find = direction => {
        if (!rows.search.has("searchText")) {
            field.current?.focus();
            return;
        }
        void rows.find(direction, Number(location.peek().query.get("line")) || null).then(answer => {
            if (answer?.focus) showFocus(answer, true);
        });
    };
    /** @param {WindowLine} line */
    const choose = line =>
        setQuery(
            { line: Number(location.peek().query.get("line")) === line.id ? null : String(line.id) },
            { replace: true },
        );

    // Where it begins: the address says so; else at a match of the search; else at the end.
    useEffect(() => {
        const at = location.peek().query;
        const begin = async () => {
            const [error, line, upper] = [at.get("find") === "error", at.get("line"), at.get("top")];
            if (error) return firstErrorOrEnd();
            if (upper || line) {
                const answer = await rows.open({ around: upper ?? line ?? "" });
                if (answer?.focus) {
                    showFocus(answer, false);
                    const index = answer.lines.findIndex(candidate => candidate.id === answer.focus);
                    if (upper) top.value = Math.min(lastTop(scale()), answer.position + index);
                    return;
                }
            }
            if (rows.search.has("searchText") && !rows.search.has("onlyMatches")) {
                const answer = await rows.open({ find: "next" });
                if (answer?.focus) return showFocus(answer, true);
            }
            if (await rows.open()) following.value = true;
        };
        const firstErrorOrEnd = async () => {
            const answer = await rows.open({ find: "error" });
            if (answer?.focus) return showFocus(answer, true);
            if (await rows.open()) following.value = true;
            toast("This log has no error and no traceback.");
        };
        // At once, and again when a master that was away is back.
        const back = reconnects.subscribe(() => {
            if (rows.loaded.peek()) return;
            void begin().then(() => {
                if (rows.outdated) void rows.refresh(following.peek()); // lines came meanwhile
            });
        });
        return () => {
            back();
            rows.end();
        };
    }, [rows]);

    useEffect(() => {
        if (!live) return undefined;
        let timer = 0;
        let last = 0;
        const refresh = () => {
            if (timer) return;
            timer = setTimeout(
                () => {
                    timer = 0;
                    last = Date.now();
                    void rows.refresh(following.peek());
                },
                Math.max(0, last + MIN_REFRESH_INTERVAL - Date.now()),
            );
        };
        const unfollow = subscribe(`log:${task}`, refresh);
        const back = reconnects.subscribe(refresh);
        return () => {
            unfollow();
            back();
            clearTimeout(timer);
        };
    }, [rows, live]);

    // Where the reader is, for a reload and for a link.
    useEffect(() => {
        if (!rows.loaded.value) return undefined;
        const timer = setTimeout(() => {
            const line = rows.at(Math.round(top.value));
            const now = location.peek().query;
            const topId = following.value || !line ? null : String(line.id);
            if (now.get("top") !== topId && !(topId && now.get("line") && !moved.current))
                setQuery({ top: topId }, { replace: true });
            moved.current = true;
        }, POSITION_DELAY);
        return () => clearTimeout(timer);
    }, [top.value, following.value, rows.loaded.value]);
    const moved = useRef(false);

    /** @param {number} steps from the chosen line, or from the first one in sight */
    const step = steps => {
        const id = Number(location.peek().query.get("line"));
        let at = -1;
        for (const [position, line] of rows.lines) if (line.id === id) at = position;
        const next = at < 0 ? Math.ceil(top.peek()) : Math.min(rows.total.peek() - 1, Math.max(0, at + steps));
        const line = rows.at(next);
        if (!line) return;
        const now = following.peek() ? lastTop(scale()) : top.peek();
        following.value = false;
        top.value = topToReveal(scale(), now, next);
        setQuery({ line: String(line.id) }, { replace: true });
    };
    useEffect(() => {
        /** @param {KeyboardEvent} event */
        const pressed = event => {
            if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
            if (document.querySelector("dialog[open], [role=menu]")) return;
            const inLines = event.target instanceof Element && event.target.closest(".log-scroller");
            /** @type {Record<string, () => void>} */
            const keys = {
                "/": () => field.current?.focus(),
                n: () => find("next"),
                N: () => find("previous"),
                w: () => setQuery({ wrap: location.peek().query.has("wrap") ? null : "1" }, { replace: true }),
                f: toTheEnd,
                j: () => step(1),
                k: () => step(-1),
                ...(inLines
                    ? {
                          ArrowDown: () => step(1),
                          ArrowUp: () => step(-1),
                          End: toTheEnd,
                          Home: () => openAt({ position: 0 }),
                          Escape: () => setQuery({ line: null }, { replace: true }),
                          Enter: () => {
                              for (const line of rows.lines.values())
                                  if (line.cut && String(line.id) === location.peek().query.get("line"))
                                      void rows.loadFullLine(line.id);
                          },
                      }
                    : {}),
            };
            const action = keys[event.key];
            if (!action) return;
            event.preventDefault();
            action();
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, [rows]);

    const side = query.has("side") ? listParam(query, "rank") : [];
    const look = {
        marked: query.get("regex") ? "" : (query.get("q") ?? ""),
        wrap: query.has("wrap"),
        times: /** @type {Times} */ (query.get("time") ?? ""),
        side: side.length > 1 ? side : [],
    };
    const waiting = rows.arrived.value - rows.total.value;
    const skipped = rows.skipped.value;
    const onShare = (/** @type {number} */ share) => openAt({ share });
    return div(
        { class: look.side.length ? "log-view side-by-side" : "log-view", style: { "--ranks": look.side.length } },
        LogTools({
            rows,
            command,
            field,
            onFind: find,
            onFirstError: firstError,
            onShare,
            onTime: seconds => openAt({ at: seconds }),
        }),
        rows.failed.value ? p({ class: "error-text", role: "alert" }, visible(rows.failed.value, 500)) : null,
        look.side.length
            ? div(
                  { class: "log-heads" },
                  span(null, ""),
                  look.side.map(rank => span({ key: rank }, rank === "-1" ? "without a rank" : `rank ${rank}`)),
              )
            : null,
        rows.loaded.value || rows.failed.value ? null : LoadingBar({}),
        div(
            { class: "log-body" },
            LogLines({ rows, look, top, view, following, chosen, onChoose: choose }),
            LogStrip({
                rows,
                top: following.value
                    ? lastTop({ total: rows.total.value, view: view.value, wraps: look.wrap })
                    : top.value,
                view,
                onShare,
            }),
        ),
        div(
            { class: "log-foot", role: "status" },
            rows.loaded.value
                ? span(
                      null,
                      rows.total.value
                          ? `${plural(rows.total.value, "line")}`
                          : filter || search
                            ? "No matching lines."
                            : "No lines yet.",
                  )
                : null,
            skipped
                ? button(
                      {
                          type: "button",
                          onClick: () => {
                              rows.skipped.value = null;
                              openAt({ position: skipped.position });
                          },
                      },
                      `${count(skipped.lines)} lines skipped, show`,
                  )
                : null,
            span({ class: "gap" }),
            following.value
                ? span({ class: "muted" }, live ? "Following" : "End of log")
                : button(
                      { type: "button", onClick: toTheEnd },
                      waiting > 0 ? `${plural(waiting, "new line")} ↓` : "To the end ↓",
                  ),
        ),
    );
});
