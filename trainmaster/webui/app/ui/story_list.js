/** Events with their reasons, one below the other. */
import { visible } from "../lib/format.js";
import { RelativeTime } from "./cells.js";
import { href } from "./router.js";
import { component, tags } from "./tags.js";

/**
 * @typedef {{ id?: number, at: number, trial?: number | null, subject: string, event: string, before: string, after: string,
 *   why: string, decisions: string[] }} TimelineEvent `at`: seconds since 1970
 */

const { a, div, li, ol, p, span } = tags;

/**
 * `race`: the address of what the search knew when it stopped, paused or resumed a trial, where it compares trials at
 * rungs.
 */
export const StoryList = component(
    (
        /** @type {{ events: readonly TimelineEvent[], race?: (event: TimelineEvent) => string | null }} */ {
            events,
            race,
        },
    ) =>
        ol(
            { class: "story" },
            events.map((event, at) =>
                li(
                    { key: at },
                    span({ class: "story-when" }, RelativeTime({ seconds: event.at })),
                    div(
                        null,
                        event.trial ? [a({ href: href(`trials/${event.trial}`) }, `trial ${event.trial}`), " "] : null,
                        span({ class: "story-what" }, eventText(event)),
                        event.why ? p(null, visible(event.why, 1000)) : null,
                        RaceLink({ to: (isVerdict(event) && race?.(event)) || "" }),
                        event.decisions.map((decision, index) =>
                            p({ key: index, class: "muted" }, `→ ${visible(decision, 1000)}`),
                        ),
                    ),
                ),
            ),
        ),
);

/** @param {TimelineEvent} event */
function isVerdict({ subject, event }) {
    return subject === "search" && ["Stop", "Pause", "Resume"].includes(event);
}

const RaceLink = component((/** @type {{ to: string }} */ { to }) =>
    to ? a({ href: to }, "See this decision in the rung race") : null,
);

/** What happened, in words; events that have none here are told by their names. */
const EVENT_TEXTS = new Map([
    ["search started", "search started"],
    ["search Create", "proposed by the search"],
    ["search Stop", "stopped by the search"],
    ["search Pause", "paused by the search"],
    ["search Resume", "resumed by the search"],
    ["search Warning", "warning of the search"],
    ["search Shutdown", "search completed"],
    ["trial Created", "created"],
    ["trial Stop", "stop requested"],
    ["trial AllocationEnded", "job ended"],
    ["trial Pause", "paused"],
    ["trial Hold", "waits for the search"],
    ["trial Release", "resumed"],
    ["trial Activate", "activated"],
    ["experiment Pause", "paused"],
    ["experiment Activate", "activated"],
    ["experiment Cancel", "canceled"],
    ["experiment Kill", "killed"],
]);

/** @param {TimelineEvent} event */
function eventText(event) {
    const words = EVENT_TEXTS.get(`${event.subject} ${event.event}`);
    const name = visible(event.event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase(), 60);
    const change =
        event.before && event.before !== event.after
            ? `: ${event.before.toLowerCase()} → ${event.after.toLowerCase()}`
            : "";
    return `${words ?? `${visible(event.subject, 30)} ${name}`}${change.replaceAll("_", " ")}`;
}
