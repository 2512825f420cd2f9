/**
 * News of what the page shows: one WebSocket a tab, over which the master says which topics have changed. Where there
 * is none, as behind an old proxy, every topic counts as changed every few seconds.
 *
 * News are hints: who hears one reads again, with its ordinary call. A connection that begins brings a hint for every
 * topic, so that nothing is missed before it, nor while there was none.
 */
import { signal } from "../../vendor/signals/signals.js";
import { ApiError, away, comebacks, ROOT, send, sessionEnded } from "./http.js";

/** @typedef {{ topic: string, seq: number }} News */
/** @typedef {(news: News) => unknown} Heard */
/** @typedef {{ heard: Heard, busy: boolean, again: boolean }} Follower */
/**
 * What the page knows of its own age. `live`: changes come by themselves; `asking`: it asks every few seconds; `old`:
 * the master does not answer, and what is seen is of the time `since`, in milliseconds.
 * @typedef {{ how: "live" | "asking" | "old", since: number }} Freshness
 */

export const EVERY = 5000; // ms between two looks without a connection
const EVERY_HIDDEN = 30_000;
const HIDDEN_FOR = 60_000; // ms after which a page that nobody sees follows nothing
const OPENS_WITHIN = 10_000;
const SILENT_FOR = 45_000; // ms without a message, after which the connection counts as lost; they come every 20 s
const SOONEST = 500; // ms until another try ...
const LATEST = 30_000; // ... of a connection that was lost
const REFUSED_FOR = 300_000; // ms until another try where there was never one
const BETWEEN_MESSAGES = 400; // ms

/** Null: nothing is followed, or it is not known yet. */
export const freshness = signal(/** @type {Freshness | null} */ (null));

/** @type {Map<string, { followers: Set<Follower>, seq: number }>} */
const topics = new Map();
/** @type {WebSocket | null} */
let socket = null;
let opened = false; // the socket has brought a message
let connecting = false;
let tries = 0; // without a connection between them
let refusals = 0; // connections that never opened
let fresh = Date.now(); // when what is shown was known to be true
let asked = Date.now();
let sentAt = 0;
/** @type {Record<string, ReturnType<typeof setTimeout> | undefined>} */
const timers = {};

/**
 * Calls `heard` when something of a topic may have changed. While what it returns is not settled it is not called
 * again, and then once more if there were news.
 * @param {string} topic `mine`, `list`, `experiment:5`, `trial:7` or `log:TASK`
 * @param {Heard} heard
 * @returns {() => void} ends it
 */
export function follow(topic, heard) {
    const known = topics.get(topic) ?? { followers: new Set(), seq: 0 };
    const follower = { heard, busy: false, again: false };
    known.followers.add(follower);
    topics.set(topic, known);
    changed();
    return () => {
        follower.again = false;
        known.followers.delete(follower);
        if (known.followers.size === 0 && topics.get(topic) === known) topics.delete(topic);
        changed();
    };
}

// -- telling followers ------------------------------------------------------------------------------------------------

/** @param {string} topic */
function tell(topic) {
    const known = topics.get(topic);
    if (!known) return;
    known.seq += 1;
    for (const follower of known.followers) void call(follower, { topic, seq: known.seq });
}

/** @param {Follower} follower @param {News} news */
async function call(follower, news) {
    if (follower.busy) {
        follower.again = true;
        return;
    }
    follower.busy = true;
    try {
        await follower.heard(news);
    } catch {
        // who reads says itself what went wrong
    }
    follower.busy = false;
    if (follower.again) {
        follower.again = false;
        void call(follower, news);
    }
}

function tellAll() {
    for (const topic of topics.keys()) tell(topic);
}

// -- the connection ---------------------------------------------------------------------------------------------------

/** What is followed has changed: the master is told, a little later and once for all of it. */
function changed() {
    if (topics.size === 0) freshness.value = null;
    else if (opened) note();
    if (timers["say"] !== undefined) return;
    later("say", Math.max(0, sentAt + BETWEEN_MESSAGES - Date.now()), () => {
        // One that still connects will say it in its first message, after one that closes comes another.
        if (socket?.readyState === WebSocket.OPEN) {
            sentAt = Date.now();
            socket.send(JSON.stringify({ follow: [...topics.keys()] }));
        } else void connect();
    });
}

async function connect() {
    if (socket || connecting || topics.size === 0 || restsHidden()) return;
    connecting = true;
    stop("retry");
    try {
        const { ticket } = await send("POST", "api/x1/tickets", { purpose: "live" });
        open(ticket);
    } catch (error) {
        const status = error instanceof ApiError ? error.status : 0;
        if (status === 400 || status === 404 || status === 422) refusals += 1; // an older master
        lost();
    } finally {
        connecting = false;
    }
}

/** @param {string} ticket */
function open(ticket) {
    const address = new URL("api/x1/live", ROOT);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const mine = new WebSocket(address);
    socket = mine;
    later("silence", OPENS_WITHIN, () => drop(mine));
    mine.onopen = () => {
        sentAt = Date.now();
        mine.send(JSON.stringify({ ticket, follow: [...topics.keys()] }));
    };
    mine.onmessage = event => {
        if (mine !== socket) return;
        opened = true;
        tries = refusals = 0;
        stop("poll");
        later("silence", SILENT_FOR, () => drop(mine));
        fresh = Date.now();
        note();
        const said = JSON.parse(event.data);
        if (said.topic) tell(said.topic);
    };
    mine.onclose = () => drop(mine);
}

/** @param {WebSocket} mine */
function drop(mine) {
    if (mine !== socket) return;
    socket = null;
    mine.onclose = mine.onmessage = mine.onopen = null;
    mine.close();
    stop("silence");
    if (!opened) refusals += 1;
    opened = false;
    lost();
}

/** There is no connection: look every few seconds, and try again. */
function lost() {
    note();
    if (topics.size === 0 || restsHidden()) return;
    tries += 1;
    const soon = Math.min(LATEST, SOONEST * 2 ** (tries - 1));
    later("retry", refusals > 1 ? REFUSED_FOR : soon * (0.5 + Math.random()), () => void connect());
    if (timers["poll"] === undefined) poll();
}

function poll() {
    later("poll", document.hidden ? EVERY_HIDDEN : EVERY, () => {
        if (opened || topics.size === 0 || restsHidden()) return;
        if (away.value === null) {
            fresh = asked; // what was asked for then has come
            asked = Date.now();
            tellAll();
        }
        note();
        poll();
    });
}

/** Says how old what is seen may be. */
function note() {
    if (topics.size === 0) return;
    const how = away.value !== null || sessionEnded.value ? "old" : opened ? "live" : "asking";
    const before = freshness.value;
    if (before?.how !== how) freshness.value = { how, since: fresh };
}

// -- hidden pages, masters that come back -----------------------------------------------------------------------------

/** @type {number | null} */
let hiddenSince = document.hidden ? Date.now() : null;

/** Whether nobody has seen the page for a while. */
function restsHidden() {
    return hiddenSince !== null && Date.now() - hiddenSince >= HIDDEN_FOR && refusals === 0;
}

document.addEventListener("visibilitychange", () => {
    hiddenSince = document.hidden ? (hiddenSince ?? Date.now()) : null;
    if (document.hidden) {
        later("hidden", HIDDEN_FOR, () => {
            if (socket && restsHidden()) drop(socket);
        });
        return;
    }
    stop("hidden");
    tries = 0;
    if (opened) return;
    stop("poll");
    if (refusals > 0) tellAll();
    lost();
    void connect();
});

comebacks.subscribe(times => {
    if (times === 0) return;
    tries = 0;
    if (opened || refusals > 0) tellAll();
    if (!opened) void connect(); // and its hints, a few pages after each other
    note();
});
away.subscribe(note);
sessionEnded.subscribe(note);

/** @param {string} name @param {number} wait @param {() => void} then */
function later(name, wait, then) {
    stop(name);
    timers[name] = setTimeout(() => {
        timers[name] = undefined;
        then();
    }, wait);
}

/** @param {string} name */
function stop(name) {
    clearTimeout(timers[name]);
    timers[name] = undefined;
}
