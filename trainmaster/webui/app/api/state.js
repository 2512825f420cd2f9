/**
 * The signals that all pages share, in one place: the session, whether the master answers, how fresh the data is, and
 * the time. Only the module named beside a signal writes it. The address is `location` of `ui/router.js`.
 */
import { signal } from "../../vendor/signals/signals.js";

/** @import { PageSession } from "../../types/api.d.ts" */
/**
 * @typedef {{ service: "master" | "database", since: number }} Outage `since`: in milliseconds. Without its database the
 *   master answers, but serves no data.
 */
/**
 * How the page learns of changes. `live`: over the connection; `polling`: it asks every few seconds; `stale`: the master
 * does not answer, and the data on the page is as of `since`, in milliseconds.
 * @typedef {{ mode: "live" | "polling" | "stale", since: number }} Freshness
 */

/** What the master says of itself and of the user; null until it has answered (session.js). */
export const session = signal(/** @type {PageSession | null} */ (null));
/** Whether a call was refused because the session has ended (http.js, session.js). */
export const sessionEnded = signal(false);
/** Whether the user is signing out: calls that are refused meanwhile need no password (session.js). */
export const signingOut = signal(false);
/** Which service does not answer; null while both do (http.js). */
export const outage = signal(/** @type {Outage | null} */ (null));
/** Counts how often the master has come back: components that show data read this and fetch again (http.js, session.js). */
export const reconnects = signal(0);
/** Null: the page subscribes to nothing, or it is not known yet (live.js). */
export const freshness = signal(/** @type {Freshness | null} */ (null));
/** The present time in milliseconds, every 10 s: for relative times such as `5 min ago` (this module). */
export const clock = signal(Date.now());

setInterval(() => {
    clock.value = Date.now();
}, 10_000);
