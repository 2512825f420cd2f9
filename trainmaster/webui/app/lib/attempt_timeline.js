/** A trial's life over its jobs: when each waited, trained and did work that was lost, for a Gantt chart. */

/** @import { Attempt } from "../../types/api.d.ts" */

/**
 * @typedef {"wait" | "run" | "lost" | "limit"} PartKind `lost`: work that a later attempt did again; `limit`: what is
 *   left until the job's time limit
 * @typedef {{ kind: PartKind, from: number, to: number }} Part seconds since 1970
 * @typedef {{ attempt: Attempt, parts: Part[], saved: number[], preempted: number | null }} Bar `saved`: when checkpoints
 *   were; `asked`: when it was asked to leave
 * @typedef {{ from: number, to: number, bars: Bar[], waited: number, ran: number, lost: number, lostSteps: number }} Timeline
 *   the last ones in seconds and batches
 */

/**
 * @param {readonly Attempt[]} attempts
 * @param {number} now seconds since 1970
 * @returns {Timeline}
 */
export function timelineOf(attempts, now) {
    const bars = attempts.map((attempt, at) => barOf(attempt, now, at < attempts.length - 1));
    const parts = bars.flatMap(bar => bar.parts);
    const sum = (/** @type {PartKind} */ kind) =>
        parts.filter(part => part.kind === kind).reduce((total, part) => total + part.to - part.from, 0);
    return {
        from: Math.min(now, ...attempts.map(attempt => attempt.created)),
        to: Math.max(...parts.map(part => part.to), ...attempts.map(attempt => attempt.created + 1)),
        bars,
        waited: sum("wait"),
        ran: sum("run") + sum("lost"),
        lost: sum("lost"),
        lostSteps: attempts.reduce((total, attempt) => total + attempt.lostSteps, 0),
    };
}

/**
 * @param {Attempt} attempt
 * @param {number} now
 * @param {boolean} followed whether another attempt came after it
 * @returns {Bar}
 */
function barOf(attempt, now, followed) {
    const end = attempt.ended ?? now;
    const begin = attempt.started ?? end;
    /** @type {Part[]} */
    const parts = [];
    if (begin > attempt.created) parts.push({ kind: "wait", from: attempt.created, to: begin });
    const saved = attempt.checkpoints.map(checkpoint => checkpoint.at).filter(at => at >= begin && at <= end);
    if (attempt.started !== null && end > begin) {
        // Only what a later attempt has done again is known to be lost.
        const savedUntil = followed && attempt.lostSteps > 0 ? Math.max(begin, ...saved) : end;
        if (savedUntil > begin) parts.push({ kind: "run", from: begin, to: savedUntil });
        if (end > savedUntil) parts.push({ kind: "lost", from: savedUntil, to: end });
        if (attempt.ended === null && attempt.endsAt !== null && attempt.endsAt > now) {
            parts.push({ kind: "limit", from: now, to: attempt.endsAt });
        }
    }
    return { attempt, parts, saved, preempted: attempt.preemptedAt };
}
