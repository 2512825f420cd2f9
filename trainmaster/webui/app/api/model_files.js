/** The files that an experiment's trials run, as the master keeps them. */
import { get, send } from "./http.js";

/** @typedef {{ path: string, isDir: boolean, contentLength: number, files: ModelFile[] }} ModelFile */

/** The files without their folders. @param {number} id of an experiment @returns {Promise<ModelFile[]>} */
export async function modelFiles(id) {
    const answer = await get(`api/v1/experiments/${id}/file_tree`);
    /** @type {ModelFile[]} */
    const files = [];
    const walk = (/** @type {ModelFile[]} */ nodes) => {
        for (const node of nodes) {
            if (node.isDir) walk(node.files ?? []);
            else files.push(node);
        }
    };
    walk(answer.files ?? []);
    return files;
}

/** The text of a file. @param {number} id of an experiment @param {string} path */
export async function modelFile(id, path) {
    const { file } = await send("POST", `api/v1/experiments/${id}/file`, { path });
    return new TextDecoder().decode(binary(file));
}

/** @param {string} base64 */
export function binary(base64) {
    return Uint8Array.from(atob(base64), character => character.charCodeAt(0));
}
