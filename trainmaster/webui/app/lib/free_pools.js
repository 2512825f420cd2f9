/** What the owner of an experiment that waits can do about it. */

/** @import { HomeExperiment, HomePool } from "../../types/api.d.ts" */

const MAX_POOLS = 2;

/**
 * Other pools that could start a trial of it now: of the same kind, accelerators or none, with enough free slots. The
 * freest come first.
 * @param {Pick<HomeExperiment, "pool" | "slots">} experiment
 * @param {HomePool[]} pools
 */
export function poolsWithRoom(experiment, pools) {
    const current = pools.find(pool => pool.name === experiment.pool);
    if (experiment.slots < 1 || !current) return [];
    return pools
        .filter(
            pool =>
                pool.name !== experiment.pool &&
                !pool.rests &&
                Boolean(pool.accelerator) === Boolean(current.accelerator),
        )
        .map(pool => ({ name: pool.name, free: pool.slots - pool.used }))
        .filter(pool => pool.free >= experiment.slots)
        .sort((first, second) => second.free - first.free)
        .slice(0, MAX_POOLS);
}
