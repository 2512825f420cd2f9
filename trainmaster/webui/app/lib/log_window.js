/**
 * From a scroll bar to lines: a million lines are higher than any element of a browser may be. Up to `HIGHEST` pixels a
 * line has its true height; above, short ways of the scroll bar move by pixels, long ones by the share of the log.
 */

export const LINE_HEIGHT = 18; // pixels of a line
export const MAX_HEIGHT = 8_000_000; // pixels of the scrolled element
const MAX_PIXEL_SCROLL = 1500; // pixels that are no jump

/**
 * @typedef {object} Scale
 * @property {number} total lines
 * @property {number} view height of what is visible, in pixels
 * @property {boolean} [wraps] whether lines may be higher than `LINE`
 */

/** The greatest position that the first visible line can have; a share of a line counts. @param {Scale} scale */
export function lastTop({ total, view, wraps }) {
    return Math.max(0, total - (wraps ? 1 : view / LINE_HEIGHT));
}

/** The height of what is scrolled. @param {Scale} scale */
export function scrollHeight(scale) {
    return Math.min(lastTop(scale) * LINE_HEIGHT, MAX_HEIGHT) + scale.view;
}

/**
 * Where the scroll bar is when the first visible line is at a position.
 * @param {Scale} scale
 * @param {number} top
 */
export function scrollOffset(scale, top) {
    const last = lastTop(scale);
    return last > 0 ? Math.min(1, Math.max(0, top / last)) * (scrollHeight(scale) - scale.view) : 0;
}

/**
 * The position of the first visible line after the scroll bar has moved.
 * @param {Scale} scale
 * @param {number} top the position before
 * @param {number} from where the scroll bar was
 * @param {number} to where it is
 * @param {(pixels: number) => number} [moved] the position that is so many pixels further, where lines are of many heights
 */
export function topAfter(scale, top, from, to, moved) {
    const range = scrollHeight(scale) - scale.view;
    const last = lastTop(scale);
    if (to <= 0 || range <= 0) return 0;
    if (to >= range - 0.5) return last;
    if (!scale.wraps && last * LINE_HEIGHT <= range + 1) return Math.min(last, to / LINE_HEIGHT);
    if (Math.abs(to - from) > MAX_PIXEL_SCROLL) return (to / range) * last;
    const next = moved && scale.wraps ? moved(to - from) : top + (to - from) / LINE_HEIGHT;
    return Math.min(last, Math.max(0, next));
}

/**
 * The lines that are drawn: those that are visible, and where lines are higher, enough above to fill the view.
 * @param {Scale} scale
 * @param {number} top
 * @returns {[number, number]} the first, and the one behind the last
 */
export function visibleRange({ total, view, wraps }, top) {
    const room = Math.ceil(view / LINE_HEIGHT) + 1;
    const first = Math.max(0, Math.floor(wraps ? Math.min(top, total - room) : top));
    return [first, Math.min(total, Math.floor(Math.max(first, top)) + room)];
}

/**
 * The position with which a line is in the middle of the view.
 * @param {Scale} scale
 * @param {number} position
 */
export function topToCentre(scale, position) {
    return Math.min(lastTop(scale), Math.max(0, position - scale.view / LINE_HEIGHT / 2 + 0.5));
}

/**
 * The position with which a line is in view, as near as can be to the present one.
 * @param {Scale} scale
 * @param {number} top
 * @param {number} position
 */
export function topToReveal(scale, top, position) {
    const lines = scale.view / LINE_HEIGHT;
    if (position < top) return position;
    if (position + 1 > top + lines) return Math.min(lastTop(scale), position + 1 - lines);
    return top;
}

/**
 * The pieces, of `size` lines each, that hold the lines from `first` to `end`.
 * @param {number} first
 * @param {number} end exclusive
 * @param {number} size
 */
export function piecesOf(first, end, size) {
    const pieces = [];
    for (let piece = Math.floor(first / size); piece * size < end; piece += 1) pieces.push(piece);
    return pieces;
}

/**
 * What a strip of `height` pixels shows of some counts: for each row of pixels the greatest of its bins.
 * @param {readonly number[]} counts
 * @param {number} height
 */
export function stripRows(counts, height) {
    const rows = new Array(Math.max(0, Math.floor(height))).fill(0);
    const size = counts.length;
    if (size === 0) return rows;
    for (let row = 0; row < rows.length; row += 1) {
        const from = Math.floor((row * size) / rows.length);
        const to = Math.max(from + 1, Math.ceil(((row + 1) * size) / rows.length));
        for (let at = from; at < Math.min(to, size); at += 1) rows[row] = Math.max(rows[row], counts[at] ?? 0);
    }
    return rows;
}
