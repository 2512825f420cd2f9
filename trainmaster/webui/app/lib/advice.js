/** What the owner of an experiment that waits can do about it. */

/** @import { HomeExperiment, HomePool } from "../../types/api.d.ts" */

const MOST = 2;

/**
 * Other pools that could start a trial of it now: of the same kind, accelerators or none, with enough free slots. The
 * freest come first.
 * @param {Pick<HomeExperiment, "pool" | "slots">} one
 * @param {HomePool[]} pools
 */
export function poolsWithRoom(one, pools) {
    const own = pools.find(pool => pool.name === one.pool);
    if (one.slots < 1 || !own) return [];
    return pools
        .filter(pool => pool.name !== one.pool && !pool.rests && Boolean(pool.accelerator) === Boolean(own.accelerator))
        .map(pool => ({ name: pool.name, free: pool.slots - pool.used }))
        .filter(pool => pool.free >= one.slots)
        .sort((first, second) => second.free - first.free)
        .slice(0, MOST);
}
