/**
 * Calls of the master's API. The page never sees a token: the browser sends the session's cookie, and what changes
 * something carries a header that no other site can send.
 */
import { signal } from "../../vendor/signals/signals.js";

/** The master's root, whatever prefix a proxy has put before it. */
export const ROOT = new URL("../", document.baseURI);

/** Since when the master has not answered, as milliseconds; null while it does. */
export const awaySince = signal(/** @type {number | null} */ (null));
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
        noteAway();
        throw new ApiError(0, "The master does not answer.");
    }
    if (answer.status === 502 || answer.status === 504) {
        noteAway(); // a proxy's word for the same
        throw new ApiError(0, "The master does not answer.");
    }
    const kind = answer.headers.get("content-type") ?? "";
    const body = kind.startsWith("application/json") ? await answer.json() : null;
    if (answer.ok) return body;
    if (answer.status === 401 && path !== "session") sessionEnded.value = true;
    const sentence = body?.error?.error ?? body?.message ?? `The master answered ${answer.status}.`;
    throw new ApiError(answer.status, String(sentence), Number(answer.headers.get("retry-after")) || 0);
}

function noteAway() {
    if (awaySince.value !== null) return;
    awaySince.value = Date.now();
    const look = async () => {
        try {
            const answer = await fetch(new URL("info", ROOT), { credentials: "omit" });
            if (answer.ok) {
                awaySince.value = null;
                comebacks.value += 1;
                return;
            }
        } catch {
            // still away
        }
        setTimeout(look, LOOK_AGAIN);
    };
    setTimeout(look, LOOK_AGAIN);
}
