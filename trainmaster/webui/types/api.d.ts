export interface User { id: number; username: string; admin: boolean; displayName: string }
export interface PageSession { user: User | null; permissions: { [name: string]: number[] | null }; clusterName: string; version: string; message: string }
export interface ExperimentTable { columns: string[]; rows: (string | number | boolean | null | string[])[][]; total: number }
