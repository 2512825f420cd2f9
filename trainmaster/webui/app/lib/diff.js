/** The difference of two texts, line by line (Myers 1986, on what is left between the common beginning and end). */

/** @typedef {{ kind: "same" | "gone" | "new", text: string, before: number | null, after: number | null }} Line */

const MAX_EDITS = 1000; // beyond, the texts have so little in common that all of it is shown as changed

/**
 * @param {string} before
 * @param {string} after
 * @returns {Line[]} numbers count from 1
 */
export function difference(before, after) {
    const a = lines(before);
    const b = lines(after);
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end])
        end += 1;
    /** @type {Line[]} */
    const result = [];
    const same = (/** @type {number} */ i, /** @type {number} */ j) =>
        result.push({ kind: "same", text: a[i] ?? "", before: i + 1, after: j + 1 });
    for (let i = 0; i < start; i += 1) same(i, i);
    for (const step of editScript(a.slice(start, a.length - end), b.slice(start, b.length - end))) {
        if (step.kind === "same") same(step.i + start, step.j + start);
        else if (step.kind === "gone")
            result.push({ kind: "gone", text: a[step.i + start] ?? "", before: step.i + start + 1, after: null });
        else result.push({ kind: "new", text: b[step.j + start] ?? "", before: null, after: step.j + start + 1 });
    }
    for (let i = a.length - end; i < a.length; i += 1) same(i, i - a.length + b.length);
    return result;
}

/** @param {string} text */
function lines(text) {
    const result = text.split("\n");
    if (result.at(-1) === "") result.pop();
    return result;
}

/**
 * @param {string[]} a
 * @param {string[]} b
 * @returns {{ kind: "same" | "gone" | "new", i: number, j: number }[]}
 */
function editScript(a, b) {
    const maxEdits = Math.min(a.length + b.length, MAX_EDITS);
    /** @type {Map<number, number>[]} how far each diagonal came, after each number of edits */
    const rounds = [];
    let reach = new Map([[1, 0]]);
    for (let edit = 0; edit <= maxEdits; edit += 1) {
        rounds.push(new Map(reach));
        for (let k = -edit; k <= edit; k += 2) {
            const down = k === -edit || (k !== edit && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
            let i = down ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
            while (i < a.length && i - k < b.length && a[i] === b[i - k]) i += 1;
            reach.set(k, i);
            if (i >= a.length && i - k >= b.length) return backtrack(rounds, a.length, b.length, edit);
        }
        reach = new Map(reach);
    }
    return [
        ...a.map((_, i) => ({ kind: /** @type {const} */ ("gone"), i, j: 0 })),
        ...b.map((_, j) => ({ kind: /** @type {const} */ ("new"), i: 0, j })),
    ];
}

/**
 * @param {Map<number, number>[]} rounds
 * @param {number} before how many lines there are
 * @param {number} after
 * @param {number} edit
 */
function backtrack(rounds, before, after, edit) {
    let i = before;
    let j = after;
    /** @type {{ kind: "same" | "gone" | "new", i: number, j: number }[]} */
    const steps = [];
    for (let round = edit; round >= 0; round -= 1) {
        const reach = rounds[round] ?? new Map();
        const k = i - j;
        const down = k === -round || (k !== round && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
        const from = down ? k + 1 : k - 1;
        const x = round === 0 ? 0 : (reach.get(from) ?? 0);
        const y = x - from;
        const stop = round === 0 ? 0 : down ? x : x + 1;
        while (i > stop) {
            i -= 1;
            j -= 1;
            steps.push({ kind: "same", i, j });
        }
        if (round === 0) break;
        if (down) steps.push({ kind: "new", i: x, j: y });
        else steps.push({ kind: "gone", i: x, j: y });
        i = x;
        j = y;
    }
    return steps.reverse();
}
