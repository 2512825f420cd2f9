/** A trial's checkpoints. */
import { CheckpointList } from "../ui/checkpoint_list.js";
import { component } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { id, checkpoints, checkpointSize, metric } = view.board.trial;
    const command = `det trial describe ${id}`;
    return CheckpointList({ of: `trials/${id}`, number: checkpoints, size: checkpointSize, metric, command });
});
