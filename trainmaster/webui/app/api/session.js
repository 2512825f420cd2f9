/** Who uses the page, and what they may do. */
import { signal } from "../../vendor/signals/signals.js";
import { ApiError, comebacks, get, send, sessionEnded } from "./http.js";

/** @import { PageSession } from "../../types/api.d.ts" */

/** What the master says of itself and of its user; null until it has answered. */
export const session = signal(/** @type {PageSession | null} */ (null));
/** Whether the user is leaving: what is refused meanwhile needs no password. */
export const signingOut = signal(false);

export async function readSession() {
    const answer = await get("session");
    if (session.value?.user && !answer.user && !signingOut.value) {
        sessionEnded.value = true; // above the page, which keeps what was typed into it
        return;
    }
    const again = sessionEnded.value && answer.user;
    session.value = answer;
    sessionEnded.value = false;
    if (again) comebacks.value += 1; // what was refused is asked for again
}

/**
 * @param {{ username: string, password: string } | { ticket: string }} given
 */
export async function signIn(given) {
    await send("POST", "session", given);
    await readSession();
}

/**
 * The name of the user whom a link signs in; the link stays good.
 * @param {string} ticket
 */
export async function ownerOfLink(ticket) {
    return (await send("POST", "session", { ticket, look: true })).user.username;
}

export async function signOut() {
    signingOut.value = true;
    try {
        await send("DELETE", "session").catch(error => {
            if (!(error instanceof ApiError && error.status === 401)) throw error; // it has ended already
        });
        await readSession();
    } finally {
        signingOut.value = false;
    }
}

/**
 * Whether the user holds a permission, in a workspace or anywhere; what would be refused is not shown.
 * @param {string} permission
 * @param {number} [workspace]
 */
export function may(permission, workspace) {
    const where = session.value?.permissions[permission];
    if (where === undefined) return false;
    return where === null || workspace === undefined || where.includes(workspace);
}
