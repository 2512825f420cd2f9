/**
 * Calls of the master's API. The page never sees a token: the browser sends the session's cookie, and what changes
 * something carries a header that no other site can send.
 */
import { signal } from "../../vendor/signals/signals.js";

/** The master's root, whatever prefix a proxy has put before it. */
export const ROOT = new URL("../", document.baseURI);

/**
 * Who has not answered, and since when in milliseconds; null while both do. Without its database a master answers, but
 * knows nothing.
 * @typedef {{ who: "master" | "database", since: number }} Absence
 */
export const away = signal(/** @type {Absence | null} */ (null));
/** Counts how often the master came back: what shows data reads this and asks again. */
export const comebacks = signal(0);
/** Whether a call was refused because the session has ended. */
export const sessionEnded = signal(false);

const LOOK_AGAIN = 3000; // ms between two looks whether the master is back

/** A refusal, with the API's own sentence. `status` 0: there was no answer. */
export class ApiError extends Error {
    /**
     * @param {number} status
     * @param {string} sentence
     * @param {number} [seconds] after which another try may work
     */
    constructor(status, sentence, seconds = 0) {
        super(sentence);
        this.name = "ApiError";
        this.status = status;
        this.seconds = seconds;
    }
}

/**
 * @template T
 * @param {string} path from the master's root on, as `api/v1/me`
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {Promise<T>}
 */
export function get(path, options = {}) {
    // Nothing but the address: the browser then takes the answer that the shell has asked for already.
    return call(path, options);
}

/**
 * @template T
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<T>}
 */
export function send(method, path, body) {
    const headers = { "Content-Type": "application/json", "X-Trainmaster": "page" };
    return call(path, { method, headers, body: JSON.stringify(body ?? {}) });
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @returns {Promise<any>}
 */
async function call(path, options) {
    let answer;
    try {
        answer = await fetch(new URL(path, ROOT), { credentials: "same-origin", ...options });
    } catch (error) {
        if (options.signal?.aborted) throw error;
        noteAway("master");
        throw new ApiError(0, "The master does not answer.");
    }
    if (answer.status === 502 || answer.status === 504) {
        noteAway("master"); // a proxy's word for the same
        throw new ApiError(0, "The master does not answer.");
    }
    const kind = answer.headers.get("content-type") ?? "";
    const body = kind.startsWith("application/json") ? await answer.json() : null;
    if (answer.ok) return body;
    if (answer.status === 503) void askForDatabase();
    if (answer.status === 401 && path !== "session") sessionEnded.value = true;
    const sentence = body?.error?.error ?? body?.message ?? `The master answered ${answer.status}.`;
    throw new ApiError(answer.status, String(sentence), Number(answer.headers.get("retry-after")) || 0);
}

let asking = false; // whether the database answers

/** A call was refused for now: for a database that is away, or for another system that was asked. */
async function askForDatabase() {
    if (asking) return;
    asking = true;
    if (!(await bothAnswer())) noteAway("database");
    asking = false;
}

/** Whether master and database answer: who uses the page is not told without either. */
async function bothAnswer() {
    try {
        return (await fetch(new URL("session", ROOT), { credentials: "same-origin" })).ok;
    } catch {
        return false;
    }
}

/** @param {Absence["who"]} who */
function noteAway(who) {
    if (away.value?.who === who) return;
    const known = away.value !== null;
    away.value = { who, since: away.value?.since ?? Date.now() };
    if (known) return;
    const look = async () => {
        if (!(await bothAnswer())) return void setTimeout(look, LOOK_AGAIN);
        away.value = null;
        comebacks.value += 1;
    };
    setTimeout(look, LOOK_AGAIN);
}
