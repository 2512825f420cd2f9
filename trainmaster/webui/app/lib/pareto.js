/** Points of two values that no other point beats. */

/** @typedef {{ id: number, x: number, y: number }} Point */

const LARGER = /acc|auc|auroc|f1|f_?score|precision|recall|score|\bmap\b|iou|dice|r2|psnr|ssim|bleu|rouge|throughput/i;

/**
 * Whether smaller values of a metric are likely to be better, by its name.
 * @param {string} name
 */
export function smallerIsLikely(name) {
    return !LARGER.test(name);
}

/**
 * The points that no other is at least as good as in both values and better in one, the best x first. Points with the
 * same two values are all among them.
 * @param {readonly Point[]} points
 * @param {boolean} smallerX whether smaller values are better
 * @param {boolean} smallerY
 * @returns {Point[]}
 */
export function paretoFront(points, smallerX, smallerY) {
    const [signX, signY] = [smallerX ? 1 : -1, smallerY ? 1 : -1];
    const ordered = points
        .filter(point => Number.isFinite(point.x) && Number.isFinite(point.y))
        .sort((a, b) => (a.x - b.x) * signX || (a.y - b.y) * signY || a.id - b.id);
    /** @type {Point[]} */
    const front = [];
    for (const point of ordered) {
        const last = front.at(-1);
        const isBetter = !last || (point.y - last.y) * signY < 0;
        if (isBetter || (point.x === last.x && point.y === last.y)) front.push(point);
    }
    return front;
}
