/** Signs in and out, and says what the user may do. */
import { ApiError, get, send } from "./http.js";
import { reconnects, session, sessionEnded, signingOut } from "./state.js";

export async function readSession() {
    const answer = await get("session");
    if (session.value?.user && !answer.user && !signingOut.value) {
        sessionEnded.value = true; // a dialog asks above the page, which keeps what was typed into it
        return;
    }
    const signedInAgain = sessionEnded.value && answer.user;
    session.value = answer;
    sessionEnded.value = false;
    if (signedInAgain) reconnects.value += 1; // refused calls are repeated
}

/**
 * @param {{ username: string, password: string } | { ticket: string }} credentials
 */
export async function signIn(credentials) {
    await send("POST", "session", credentials);
    await readSession();
}

/**
 * Return the name of the user whom a link signs in, without using the link up.
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
