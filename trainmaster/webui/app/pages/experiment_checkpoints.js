/** An experiment's checkpoints. */
import { CheckpointList } from "../ui/checkpoint_list.js";
import { component } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, checkpoints, checkpointSize, metric } = view.board.experiment;
    const command = `det experiment list-checkpoints ${id}`;
    return CheckpointList({ of: `experiments/${id}`, number: checkpoints, size: checkpointSize, metric, command });
});
