/** Events with their reasons, one below the other. */
import { visible } from "../lib/format.js";
import { Ago } from "./cells.js";
import { href } from "./router.js";
import { component, tags } from "./tags.js";

/**
 * @typedef {{ at: number, trial?: number | null, subject: string, event: string, before: string, after: string,
 *   why: string, decisions: string[] }} Happening `at`: seconds since 1970
 */

const { a, div, li, ol, p, span } = tags;

/** `race`: the address of what the search knew when it stopped a trial, where it compares trials at rungs. */
export const StoryList = component(
    (/** @type {{ events: readonly Happening[], race?: (one: Happening) => string | null }} */ { events, race }) =>
        ol(
            { class: "story" },
            events.map((one, at) =>
                li(
                    { key: at },
                    span({ class: "story-when" }, Ago({ seconds: one.at })),
                    div(
                        null,
                        one.trial ? [a({ href: href(`trials/${one.trial}`) }, `trial ${one.trial}`), " "] : null,
                        span({ class: "story-what" }, wordsOf(one)),
                        one.why ? p(null, visible(one.why, 1000)) : null,
                        Known({ to: (one.subject === "search" && one.event === "Stop" && race?.(one)) || "" }),
                        one.decisions.map((decision, place) =>
                            p({ key: place, class: "muted" }, `→ ${visible(decision, 1000)}`),
                        ),
                    ),
                ),
            ),
        ),
);

const Known = component((/** @type {{ to: string }} */ { to }) =>
    to ? a({ href: to }, "What did the search know?") : null,
);

/** What happened, in words; events that have none here are told by their names. */
const WORDS = new Map([
    ["search started", "the search began"],
    ["search Create", "proposed by the search"],
    ["search Stop", "stopped by the search"],
    ["search Shutdown", "the search has all that it wants"],
    ["trial Created", "created"],
    ["trial Stop", "asked to stop"],
    ["trial AllocationEnded", "its job ended"],
    ["trial Pause", "paused"],
    ["trial Activate", "activated"],
    ["experiment Pause", "paused"],
    ["experiment Activate", "activated"],
    ["experiment Cancel", "canceled"],
    ["experiment Kill", "killed"],
]);

/** @param {Happening} one */
function wordsOf(one) {
    const words = WORDS.get(`${one.subject} ${one.event}`);
    const event = visible(one.event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase(), 60);
    const change =
        one.before && one.before !== one.after ? `: ${one.before.toLowerCase()} → ${one.after.toLowerCase()}` : "";
    return `${words ?? `${visible(one.subject, 30)} ${event}`}${change.replaceAll("_", " ")}`;
}
